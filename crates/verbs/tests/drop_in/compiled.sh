#!/bin/sh
# compiled.sh SOURCE FOLDER: compiles a C program into the folder and runs it.
set -eu
program=$2/$(basename "$1" .c)
LD_PRELOAD= ${CC:-cc} -Wall -Wextra -Werror -O1 -o "$program" "$1" -ldl
exec "$program"
