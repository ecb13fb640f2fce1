//! A hostile guest: sends floods and malformed packets (`hostile.py`), while another guest and a program of
//! the host go on.
//!
//! Soak   `KIBAN_SOAK_TIME` (seconds) repeats it with new seeds, from `KIBAN_SOAK_SEED` on, and then waits
//!        until the board has returned its files; `make soak` does this for ten minutes.

/// The maximum of the board's resident memory, KiB: its packet memory of 64 MiB, and as much again.
const MEMORY_MAX: &str = "131072";

/// `COUNT_` is the number of frames of each kind, `SEED_` the first seed, `SECONDS_` the time, `MEMORY_` the
/// limit.
const SCRIPT: &str = r#"
python3 "$peers" watch "$3/end" > "$3/own" & own=$!
"$kiban" net -- python3 "$peers" watch "$3/end" > "$3/other" & other=$!
unshare --user --map-root-user --net sleep 10000 & guest=$!
until [ "$(readlink /proc/$guest/ns/net)" != "$(readlink /proc/self/ns/net)" ] && [ "$(cat /proc/$guest/comm)" = sleep ]; do kill -0 $guest; done
"$kiban" net $guest & board=$!
inside() { nsenter --preserve-credentials --user --net --target $guest "$@"; }
works $board
inside python3 "$peers" few
# The process that runs the board is a child of the one that was started.
for child in $(cat /proc/$board/task/$board/children); do
    grep -qsz '^KIBAN_NET_PART=board' /proc/$child/environ && process=$child
done
files() { ls /proc/$process/fd | wc -l; }
before=$(files)
until=$(($(date +%s) + SECONDS_))
seed=SEED_
while :; do
    echo "seed $seed"
    inside python3 "${peers%/*}/hostile.py" COUNT_ $seed
    kill -0 $own; kill -0 $other
    # The hostile guest has its network, too.
    inside python3 "$peers" few
    memory=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$process/status)
    echo "memory $memory KiB, files $(files)"
    [ "$memory" -le MEMORY_ ]
    [ $(date +%s) -lt $until ] || break
    seed=$((seed + 1))
done
touch "$3/end"
wait $own; wait $other
cat "$3/own" "$3/other"
# Flows of datagrams end after two minutes, handshakes that the guest does not complete after half a minute.
if [ SECONDS_ -gt 0 ]; then
    late=$(($(date +%s) + 600))
    until [ $(files) -le $((before + 8)) ]; do [ $(date +%s) -lt $late ]; inside python3 "$peers" few; done
fi
kill $guest
wait $board
"#;

#[test]
fn a_hostile_guest_harms_neither_another_guest_nor_the_host() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("KIBAN_SOAK_TIME").unwrap_or(0);
    let count = if seconds > 0 { 100_000 } else { 10_000 };
    let script = SCRIPT
        .replace("SECONDS_", &seconds.to_string())
        .replace("SEED_", &number("KIBAN_SOAK_SEED").unwrap_or(1).to_string())
        .replace("COUNT_", &count.to_string())
        .replace("MEMORY_", MEMORY_MAX);
    let (out, _) = super::run_for("hostile", &script, 300 + 2 * seconds + 600);
    println!("{out}");
    // The other guest and the host's program were at work all the time: neither has ended with an error.
    let rounds = out.lines().filter_map(|line| line.strip_suffix(" rounds")?.parse::<u64>().ok());
    let rounds: Vec<u64> = rounds.collect();
    assert!(rounds.len() == 2 && rounds.iter().all(|rounds| *rounds > 0), "{out}");
}
