// Empty: what emitted code needs of it is in cuda_emulator.h.
#pragma once
