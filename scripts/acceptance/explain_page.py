"""K: det explained in words, and as a page in a headless browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import models
from .bench import Bench, Verdict

# Typed into the page after it has loaded: filter by a word, then write what is shown.
PROBE = """
<script>
addEventListener("load", () => {
  const box = document.getElementById("decision-text");
  const shown = () => document.getElementById("decisions-count").textContent;
  const all = shown();
  box.value = "grow-epilogue applied"; box.dispatchEvent(new Event("input"));
  const some = shown();
  document.querySelector("#kernels th button").click();
  document.title = JSON.stringify({all, some,
    sorted: document.querySelector("#kernels th").ariaSort});
});
</script>
"""


def point(bench: Bench) -> Verdict:
    path = models.fetch(bench.cache)["det"]
    results = bench.items("K", ("det",), lambda _: explain(bench, path))
    (result,) = results.values() or ({"error": "not run"},)
    text = (
        "; ".join(result.get("faults", ())) or result.get("error") or "words, page, filter and sorting work"
    )
    return Verdict(bool(result.get("ok")), text, results)


def explain(bench: Bench, model: str) -> dict:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return {"ok": False, "error": "no chromium; it is in the Debian package chromium"}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        report, page = base / "det.json", base / "det.html"
        built = bench.cli(
            "build", model, "-o", base / "det.so", "--shape", "x:1,3,320,320", "--report", report
        )
        if built.returncode:
            return {"ok": False, "error": built.stderr[-500:]}
        words = bench.cli("explain", report, "--html", page)
        document = json.loads(report.read_text())
        faults = judge_words(words.stdout, document)
        figures = look(browser, page, base)
        faults += judge_page(figures, document)
        kept = bench.folder / "K" / "det.png"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(base / "shot.png", kept)
        shutil.copy(page, kept.with_suffix(".html"))
        kept.with_suffix(".txt").write_text(words.stdout)
    return {"ok": not faults, "faults": faults, "screenshot": str(kept), **figures}


def judge_words(text: str, document: dict) -> list[str]:
    """Return what the explanation fails to say."""
    needed = {
        "how many matched": f"{len(document['decisions'])} sites matched a rule",
        "how many kernels": f"{len(document['kernels'])} kernels",
        "predicted cost": "us in all",
        "alternatives": "instead of ",
    }
    faults = [f"the words lack {what}" for what, part in needed.items() if part not in text]
    codes = {d["refusal"]["code"] for d in document["decisions"] if d["refusal"]}
    faults += [f"the words lack the refusal {code}" for code in sorted(codes) if f"[{code}]" not in text]
    return faults


def look(browser: str, page: Path, base: Path) -> dict:
    """Open the page, count its rows, and note requests and console lines."""
    probe, log = base / "probe.html", base / "net.json"
    probe.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
    common = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        f"--user-data-dir={base / 'profile'}", "--enable-logging=stderr", "--v=0", "--window-size=1400,1600",
    ]  # fmt: skip
    shot = [f"--screenshot={base / 'shot.png'}", f"--log-net-log={log}", page.as_uri()]
    first = subprocess.run([*common, *shot], capture_output=True, text=True, timeout=120)
    dumped = subprocess.run(
        [*common, "--virtual-time-budget=5000", "--dump-dom", probe.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    dom = dumped.stdout
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    net = log.read_text(errors="replace") if log.exists() else ""
    # What the browser itself fetches (updates, dictionaries) is not the page's doing.
    own_hosts = ("chrome:", "devtools:", "data:")
    requests = sorted(
        {
            url
            for url in re.findall(r'"url":"([^"]+)"', net)
            if not url.startswith((*own_hosts, "file:"))
            and not re.match(r"https?://([\w-]+\.)*(google|googleapis|gstatic|gvt1|chromium)\.(com|org)", url)
        }
    )
    return {
        "decision_rows": _rows(dom, "decisions"),
        "kernel_rows": _rows(dom, "kernels"),
        "probe": title.group(1) if title else "",
        "requests": requests,
        "console": [ln for ln in (first.stderr + dumped.stderr).splitlines() if "CONSOLE" in ln],
        "screenshot_bytes": (base / "shot.png").stat().st_size if (base / "shot.png").exists() else 0,
    }


def judge_page(figures: dict, document: dict) -> list[str]:
    faults = []
    if figures["decision_rows"] != len(document["decisions"]):
        faults.append(f"{figures['decision_rows']} rows for {len(document['decisions'])} decisions")
    if figures["kernel_rows"] != len(document["kernels"]):
        faults.append(f"{figures['kernel_rows']} rows for {len(document['kernels'])} kernels")
    if figures["requests"]:
        faults.append(f"network requests: {figures['requests']}")
    if figures["console"]:
        faults.append(f"console: {figures['console']}")
    if not figures["screenshot_bytes"]:
        faults.append("no screenshot")
    count = len(document["decisions"])
    applied = sum(d["rule"] == "grow-epilogue" and d["outcome"] == "applied" for d in document["decisions"])
    try:
        probe = json.loads(figures["probe"].replace("&quot;", '"'))
    except ValueError:
        return [*faults, f"the page's script did not run: {figures['probe']!r}"]
    if probe["all"] != f"{count} of {count}" or probe["sorted"] != "ascending":
        faults.append(f"counting or sorting is wrong: {probe}")
    if not 0 < int(probe["some"].split()[0]) <= count or int(probe["some"].split()[0]) < applied:
        faults.append(f"the filter is wrong: {probe['some']}, {applied} expected")
    return faults


def _rows(dom: str, table: str) -> int:
    found = re.search(rf'<table id="{table}">.*?<tbody>(.*?)</tbody>', dom, re.DOTALL)
    return found.group(1).count("<tr") if found else -1
