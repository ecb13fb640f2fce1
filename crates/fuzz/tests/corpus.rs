//! Runs every stored input, and a short search from a fixed seed.

use kiban_fuzz::mutate::Search;
use kiban_fuzz::streams::{Size, play};
use kiban_fuzz::{Features, Target, targets};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The number of inputs that the search for one target tries. An input for a session or board costs a hundred
/// times as much as an input for a decoder, so fewer are tried.
fn attempts(target: &Target) -> usize {
    match target.name {
        "session" => 2500,
        // This target also has a separate test, which runs three hundred full-size worlds.
        "streams" => 500,
        "ip_board" | "atm_board" | "ethernet_board" => 1000,
        "vi_nic" | "efe_endpoint" => 5000,
        "lapb_link" | "x25_layer" | "xot_connection" | "x25_switch" | "pad" => 19_000,
        "rnic" | "roce_endpoint" => 15_000,
        "aal1_receiver" => 4000,
        "ftam_machine" | "roce_cm_machine" => 10_000,
        _ => 20_000,
    }
}

/// Runs `work`; a panic is reported with the input that caused it.
fn with(target: &Target, name: &str, input: &[u8], work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{}: {name} breaks it: {hex}", target.name);
    }
}

/// Runs the corpus, then mutations.
fn search(target: &Target) -> Search {
    let mut search = Search::new(*target, 1, Vec::new());
    let seeds = (target.seeds)().into_iter().map(|seed| ("a seed".to_owned(), seed));
    for (name, input) in seeds.chain(target.corpus()) {
        with(target, &name, &input.clone(), || {
            search.attempt(input);
        });
    }
    for number in 0..attempts(target) {
        let input = search.next_input();
        with(target, &format!("mutation {number}"), &input.clone(), || {
            search.attempt(input);
        });
    }
    search
}

#[test]
fn decoders_uphold_their_invariants() {
    for target in targets().iter().filter(|target| !is_heavy(target)) {
        let kept = search(target).kept.len();
        assert!(kept > 1, "{} shows nothing", target.name);
    }
}

#[test]
fn a_vi_nic_upholds_its_invariants_against_any_peer() {
    assert!(search(&named("vi_nic")).kept.len() > 30);
}

#[test]
fn an_rdma_nic_upholds_its_invariants_against_any_peers() {
    assert!(search(&named("rnic")).kept.len() > 50);
}

#[test]
fn a_roce_endpoint_upholds_its_invariants_against_any_peers() {
    assert!(search(&named("roce_endpoint")).kept.len() > 50);
}

#[test]
fn an_efe_endpoint_upholds_its_invariants_against_any_peer() {
    assert!(search(&named("efe_endpoint")).kept.len() > 30);
}

#[test]
fn an_aal1_receiver_upholds_its_invariants_for_any_cells() {
    assert!(search(&named("aal1_receiver")).kept.len() > 20);
}

#[test]
fn a_data_link_upholds_its_invariants_against_any_peer() {
    assert!(search(&named("lapb_link")).kept.len() > 30);
}

#[test]
fn x25_circuits_uphold_their_invariants_against_any_peer() {
    assert!(search(&named("x25_layer")).kept.len() > 50);
    assert!(search(&named("xot_connection")).kept.len() > 30);
}

#[test]
fn a_switch_and_a_pad_uphold_their_invariants_against_any_peers() {
    assert!(search(&named("x25_switch")).kept.len() > 30);
    assert!(search(&named("pad")).kept.len() > 15);
}

#[test]
fn a_board_behind_an_ip_port_upholds_its_invariants() {
    assert!(search(&named("ip_board")).kept.len() > 10);
}

#[test]
fn a_board_behind_an_ethernet_port_upholds_its_invariants() {
    assert!(search(&named("ethernet_board")).kept.len() > 20);
}

#[test]
fn a_board_behind_an_atm_port_upholds_its_invariants() {
    assert!(search(&named("atm_board")).kept.len() > 10);
}

#[test]
fn an_ftam_machine_upholds_its_invariants_against_any_peer_and_user() {
    assert!(search(&named("ftam_machine")).kept.len() > 60);
}

#[test]
fn communication_management_upholds_its_invariants_against_any_peer_and_consumer() {
    assert!(search(&named("roce_cm_machine")).kept.len() > 40);
}

#[test]
fn a_tcp_session_upholds_its_invariants() {
    assert!(search(&named("session")).kept.len() > 50);
}

#[test]
fn three_hundred_impaired_worlds_leave_every_stream_intact() {
    let target = named("streams");
    std::thread::scope(|scope| {
        for part in 0..2 {
            scope.spawn(move || {
                for seed in (part..300_u64).step_by(2) {
                    let input = seed.to_le_bytes();
                    with(&target, &format!("world {seed}"), &input, || {
                        play(&input, Size::Whole, &mut Features::to(&mut |_| {}));
                    });
                }
            });
        }
    });
}

#[test]
fn no_small_input_makes_an_expensive_world() {
    let target = named("streams");
    let corpus = target.corpus().into_iter().map(|(_, input)| input);
    let seeds = (0..500_u64).map(|seed| seed.to_le_bytes().to_vec());
    let inputs = corpus.chain(seeds).chain([vec![0; 15]]);
    let work: Vec<usize> =
        inputs.map(|input| play(&input, Size::Small, &mut Features::to(&mut |_| {}))).collect();
    let (most, sum) = (work.iter().max().expect("some"), work.iter().sum::<usize>());
    // One event takes a few microseconds, so this bounds the run time of an input.
    assert!(*most < Size::Small.work_max() / 4 && sum / work.len() < 1000, "{most} at most, {sum} in all");
}

fn is_heavy(target: &Target) -> bool {
    attempts(target) < 20_000
}

fn named(name: &str) -> Target {
    targets().into_iter().find(|target| target.name == name).expect("a target of that name")
}

/// Files in the families' `wire` folders that contain no decoder.
const NO_DECODERS: [&str; 1] = ["mod"];

/// Formats outside the families' `wire` folders, from `base`, `vi` and `capture`.
const ELSEWHERE: [&str; 5] = ["checksum", "crc", "ethernet", "vi", "capture"];

#[test]
fn every_decoder_has_a_target_and_every_target_a_corpus() {
    let targets = targets();
    let files = ["atm", "osi", "rdma", "tcpip"].into_iter().flat_map(|family| {
        let folder = format!("{}/../{family}/src/wire", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_dir(folder).expect("a folder of formats")
    });
    let names = files.map(|file| {
        let path = file.expect("an entry").path();
        path.file_stem().expect("a file has a name").to_string_lossy().into_owned()
    });
    let mut without = Vec::new();
    for name in names.chain(ELSEWHERE.map(str::to_owned)) {
        if !NO_DECODERS.contains(&&*name) && !targets.iter().any(|target| target.name == name) {
            without.push(name);
        }
    }
    assert!(without.is_empty(), "decoders without a target: {without:?}");
    for target in &targets {
        assert!(!target.corpus().is_empty(), "{} has no corpus", target.name);
        assert!(!(target.seeds)().is_empty(), "{} has no seeds", target.name);
    }
}

/// Checks that the search finds the failing input of a broken target, which fails only on a byte that must be
/// guessed.
#[test]
fn the_canary_of_a_broken_target_is_found() {
    let broken = Target {
        name: "broken",
        run: |bytes, _| assert!(bytes.first() != Some(&0xfe) || bytes.len() < 3, "found"),
        seeds: Vec::new,
    };
    let mut search = Search::new(broken, 1, Vec::new());
    let found = (0..100_000).any(|_| {
        let input = search.next_input();
        catch_unwind(AssertUnwindSafe(|| search.attempt(input))).is_err()
    });
    assert!(found);
}

/// Writes the inputs kept by the short search into the corpus of every target, or only of the target that
/// KIBAN_FUZZ_TARGET names.
#[test]
#[ignore = "changes the corpus"]
fn keep_what_the_search_finds() {
    let wanted = std::env::var("KIBAN_FUZZ_TARGET").ok();
    for target in
        targets().into_iter().filter(|target| wanted.as_deref().is_none_or(|name| name == target.name))
    {
        let dir = target.corpus_dir();
        std::fs::create_dir_all(&dir).expect("a directory for the corpus");
        for input in search(&target).kept.iter().filter(|input| !input.is_empty()) {
            let mut hash = 0xcbf2_9ce4_8422_2325_u64;
            input.iter().for_each(|byte| hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
            std::fs::write(dir.join(format!("{hash:016x}")), input).expect("an input is written");
        }
    }
}

/// Checks that CONTRIBUTING.md describes every target and no other.
#[test]
fn every_target_is_described() {
    let page = include_str!("../../../CONTRIBUTING.md");
    let (_, table) = page.split_once("| target | what it tests |\n|---|---|\n").expect("the table");
    let rows = table.lines().take_while(|line| line.starts_with("| `"));
    let mut described: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let mut there: Vec<&str> = targets().iter().map(|target| target.name).collect();
    described.sort_unstable();
    there.sort_unstable();
    assert_eq!(described, there);
}
