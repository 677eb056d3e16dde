#!/bin/sh
# Links a source's objects into one whose only global symbols are its tables, so that code for one CPU level
# (common/cpu/cpu_level.h) cannot become the code of the whole program: two copies of an inline function would
# otherwise meet in the linker, which keeps any.
#   isolate.sh LINKER OBJCOPY OUTPUT LEVEL OBJECT...
set -eu
linker=$1 objcopy=$2 output=$3 level=$4
shift 4
"$linker" -r --force-group-allocation -o "$output.all" "$@"
"$objcopy" --wildcard --keep-global-symbol="*_$level" --keep-global-symbol="*_${level}E" "$output.all" "$output"
rm -f "$output.all"
