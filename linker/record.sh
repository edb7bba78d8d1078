#!/bin/sh
# Writes linker/order.ld: the functions that a gateway runs from its start until it is idle with ten servers, half of which
# do not work, and one call answered (the `startup` part of the benchmarks, under callgrind). Needs Linux and valgrind.
# Names are without the hashes that each build makes anew; of a generic function all instances are meant. A function that
# is not in the list works as any other, and costs the memory around it: run this where `idle, resident` has grown.
set -eu
cd "$(dirname "$0")/.."
target=$PWD/target/order
# Callgrind knows no names outside of `.text`, so what is recorded is a binary as the linker makes it by itself.
MOONGATE_ORDER=off RUSTFLAGS="-Clink-arg=-Wl,-Map=$target/map" CARGO_PROFILE_RELEASE_STRIP=none \
    cargo build --locked --release --bin moongate --target-dir "$target"
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
cat > "$dir/moongate" <<END
#!/bin/sh
exec valgrind -q --tool=callgrind --demangle=no --callgrind-out-file=$dir/%p.out $target/release/moongate "\$@"
END
chmod +x "$dir/moongate"
cargo bench --locked --bench gateway -- --bin "$dir/moongate" --quick --parts startup

export LC_ALL=C
# What ran, of the binary itself: a name is written once, and then called by its number.
awk -v binary="$target/release/moongate" '
    /^c?(fn|ob)=/ {
        id = substr($1, 1, index($1, ")"))
        sub(/^c/, "", id)
        if (NF > 1) name[FILENAME id] = $2
        if (/^ob=/) here = name[FILENAME id] == binary
        if (/^fn=/ && here) print name[FILENAME id]
    }' "$dir"/*.out | sed "s/'[0-9]*\$//" | sort -u > "$dir/ran"
# The sections of all functions; those that seldom run are in `.text.unlikely.NAME`.
grep -oE '\.text\.[A-Za-z0-9_.$]+' "$target/map" | sort -u > "$dir/all"
{
    echo "/* Written by linker/record.sh. Those of which all instances ran come first, then those of which at least half did. */"
    echo "SECTIONS { .text.serve : {"
    awk '
        function pattern(name) {
            sub(/17h[0-9a-f]+E.*$/, "17h*", name)
            gsub(/Cs[0-9A-Za-z]+_/, "Cs*_", name)
            sub(/aws_lc_[0-9_]+_/, "aws_lc_*_", name)
            sub(/\.llvm\.[0-9]+$/, "", name)
            return name
        }
        FILENAME ~ /ran$/ { ran[pattern($1)]++; next }
        {
            section = pattern($1)
            name = section
            sub(/^\.text\.((unlikely|startup|hot)\.)?/, "", name)
            if (!(name in ran)) next
            sections[section] = name
            all[name]++
        }
        END {
            for (section in sections) {
                name = sections[section]
                print (ran[name] >= all[name] ? 0 : 2 * ran[name] >= all[name] ? 1 : 2), section
            }
        }' "$dir/ran" "$dir/all" \
        | sort | sed -E 's/^. (.*)$/*(\1)/; s/(\._R.*)\)$/\1*)/'
    echo "} } INSERT BEFORE .text;"
} > linker/order.ld
