"""Runs a program in a pseudo-terminal, and draws its screen once a second into an animated GIF.

    record.py PICTURE SECONDS PROGRAM [ARGUMENT...]

The program is ended with the key q. The last picture stays for three seconds.
"""

import os
import pty
import select
import struct
import sys
import fcntl
import termios
import time

import pyte
from PIL import Image, ImageDraw, ImageFont

COLUMNS, ROWS = 100, 30
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf"
PALETTE = {
    "default": "d0d7de", "black": "0d1117", "red": "ff7b72", "green": "3fb950", "brown": "d29922", "blue": "58a6ff",
    "magenta": "bc8cff", "cyan": "39c5cf", "white": "b1bac4", "brightblack": "6e7681", "brightred": "ffa198",
    "brightgreen": "56d364", "brightbrown": "e3b341", "brightblue": "79c0ff", "brightmagenta": "d2a8ff",
    "brightcyan": "56d4dd", "brightwhite": "ffffff",
}
GROUND = "0d1117"


def main() -> None:
    picture, seconds, *command = sys.argv[1:]
    frames = record(command, float(seconds))
    durations = [1000] * (len(frames) - 1) + [3000]
    frames[0].save(picture, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)
    print(f"{picture}: {len(frames)} pictures, {os.path.getsize(picture) // 1000} kB")


def record(command: list[str], seconds: float) -> list[Image.Image]:
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm-256color"
        os.environ["COLORTERM"] = "truecolor"
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    begin = time.monotonic()
    frames: list[Image.Image] = []
    while time.monotonic() < begin + seconds:
        due = begin + len(frames) + 1
        while (rest := due - time.monotonic()) > 0:
            if select.select([terminal], [], [], rest)[0]:
                try:
                    stream.feed(os.read(terminal, 65536))
                except OSError:
                    # The program has ended.
                    frames.append(drawn(screen))
                    os.waitpid(process, 0)
                    return frames
        frames.append(drawn(screen))
    os.write(terminal, b"q")
    # Read on, so that the program can draw its last screen and end.
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass
    os.waitpid(process, 0)
    return frames


def colour(name: str, otherwise: str) -> str:
    name = otherwise if name == "default" else PALETTE.get(name, name)
    return f"#{name}"


def drawn(screen: pyte.Screen) -> Image.Image:
    font = ImageFont.truetype(FONT, 13)
    width, height = round(font.getlength("m")), 17
    image = Image.new("RGB", (COLUMNS * width + 16, ROWS * height + 16), f"#{GROUND}")
    draw = ImageDraw.Draw(image)
    for row in range(ROWS):
        for column in range(COLUMNS):
            cell = screen.buffer[row][column]
            front, back = colour(cell.fg, PALETTE["default"]), colour(cell.bg, GROUND)
            if cell.reverse:
                front, back = back, front
            x, y = 8 + column * width, 8 + row * height
            if back != f"#{GROUND}":
                draw.rectangle((x, y, x + width - 1, y + height - 1), fill=back)
            if cell.data.strip():
                draw.text((x, y), cell.data, font=font, fill=front)
    return image.quantize(32)


if __name__ == "__main__":
    main()
