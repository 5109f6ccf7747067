"""Draw the pictures of the front page and the gallery anew: ``python docs/pictures.py`` (a few minutes).

Runs the examples that save a picture, in a temporary folder. They need ``pip install ".[examples]"``.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.image
from matplotlib import pyplot as plt

HERE = Path(__file__).resolve().parent
WIDTH = 800  # pixels


def main():
    """Run the examples and keep their pictures, in a size for the web."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ames", "birthdays", "elections", "sensitivity"):
            subprocess.run([sys.executable, HERE.parent / "examples" / f"{name}.py"], cwd=folder, check=True)
            image = matplotlib.image.imread(Path(folder) / f"{name}.png")
            height, width = image.shape[:2]
            figure = plt.figure(figsize=(WIDTH / 100, WIDTH / 100 * height / width), dpi=100)
            figure.add_axes((0, 0, 1, 1)).axis("off")
            figure.axes[0].imshow(image, interpolation="lanczos")
            figure.savefig(HERE / "pictures" / f"{name}.png")


if __name__ == "__main__":
    main()
