//! The rows of the benchmark: goodput per core, each side at its best setting.

use super::boards;
use super::boards::Segmentation;
use super::joined::{Application, Joined, MTU_BYTES, Setting};
use super::smol;
use kiban_lab::table::figure;
use kiban_lab::{Bench, Options, Table, Target, Trial, Unit};
use kiban_os::clock::{Clock, thread_cpu_nanos};

/// The number of bytes that are compared before a sample counts.
const CHECKED_BYTES: u64 = 8 << 20;

/// Returns goodput in bits per nanosecond of CPU time, using `measure`.
fn transfer<R>(
    mut joined: impl Joined,
    clock: Clock,
    measure: impl FnOnce(&mut dyn FnMut() -> f64) -> R,
) -> R {
    let mut application = Application::new();
    while application.read < CHECKED_BYTES {
        let before = clock.now();
        let read = application.read;
        while application.read == read {
            joined.turn(&clock, &mut application);
            assert!(clock.now().since(before).as_secs() < 5, "the transfer makes progress");
        }
    }
    application.compares = false;
    let result = measure(&mut || {
        let before = application.read;
        joined.turn(&clock, &mut application);
        (application.read - before) as f64
    });
    application.compare();
    joined.check();
    result
}

fn sample(trial: &mut Trial, joined: impl Joined) -> f64 {
    let clock = trial.clock();
    transfer(joined, clock, |turn| trial.measure(turn)).gbit_per_cpu_second()
}

/// One side of a comparison: how to build its ends from a setting.
struct Contender<'a, J> {
    name: &'a str,
    join: &'a dyn Fn(Setting) -> J,
    settings: Vec<Setting>,
}

/// Returns the setting with the best goodput, and that goodput.
fn tune<J: Joined>(contender: &Contender<'_, J>, quick: bool) -> (Setting, f64) {
    let clock = Clock::new();
    let (tries, span_nanos) = if quick { (1, 2_000_000) } else { (3, 25_000_000) };
    let goodput = |setting: Setting| {
        transfer((contender.join)(setting), clock, |turn| {
            let (start, mut bytes) = (thread_cpu_nanos(), 0.0);
            loop {
                bytes += turn();
                let nanos = thread_cpu_nanos() - start;
                if nanos >= span_nanos {
                    return bytes * 8.0 / nanos as f64;
                }
            }
        })
    };
    // Measure the whole grid several times, so that a disturbance does not affect only one setting.
    let mut best = vec![0f64; contender.settings.len()];
    for _ in 0..tries {
        for (best, setting) in best.iter_mut().zip(&contender.settings) {
            *best = best.max(goodput(*setting));
        }
    }
    let tried = contender.settings.iter().copied().zip(best);
    tried.max_by(|one, other| one.1.total_cmp(&other.1)).expect("there is a setting")
}

fn grid(packets: &[usize], delayed: &[bool], timestamps: &[bool]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for window_bytes in [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20] {
        for packets in packets {
            for delayed_ack in delayed.iter().copied() {
                let setting = |timestamps: &bool| Setting {
                    window_bytes,
                    packets: *packets,
                    delayed_ack,
                    timestamps: *timestamps,
                };
                settings.extend(timestamps.iter().map(setting));
            }
        }
    }
    settings
}

pub(crate) fn run(options: &Options) {
    let frames = Contender {
        name: "kiban, MTU 1500",
        join: &|setting| boards::Boards::new(setting, Segmentation::Cut),
        settings: grid(&[64, 128, 256, 512], &[true], &[true, false]),
    };
    let single = Contender {
        name: "kiban, MTU 1500, neither cut nor merged",
        join: &|setting| boards::Boards::new(setting, Segmentation::Frames),
        settings: grid(&[32, 64, 128, 256], &[true], &[true, false]),
    };
    let whole = Contender {
        name: "kiban, segments up to 64240",
        join: &|setting| boards::Boards::new(setting, Segmentation::Whole),
        settings: grid(&[2, 4, 8, 16], &[true], &[true, false]),
    };
    let smol = Contender {
        name: "smoltcp 0.14, MTU 1500",
        join: &|setting| smol::Ends::new(setting, MTU_BYTES),
        settings: grid(&[32, 64, 256, 1024], &[true, false], &[false]),
    };
    let smol_large = Contender {
        name: "smoltcp 0.14, MTU 65535",
        join: &|setting| smol::Ends::new(setting, 65_535),
        settings: grid(&[2, 4, 8, 16], &[true, false], &[false]),
    };
    let mut tuned = Table::new("tcp: the fastest settings of a grid")
        .text_column("side")
        .number_column("window KiB")
        .number_column("packets queued")
        .text_column("acknowledgements")
        .text_column("timestamps")
        .number_column("Gbit/s");
    let mut row = |name: &str, (setting, goodput): (Setting, f64)| {
        tuned.row([
            name,
            &(setting.window_bytes >> 10).to_string(),
            &setting.packets.to_string(),
            if setting.delayed_ack { "delayed" } else { "at once" },
            if setting.timestamps { "yes" } else { "no" },
            &figure(goodput),
        ]);
        setting
    };
    let frames_best = row(frames.name, tune(&frames, options.quick));
    let single_best = row(single.name, tune(&single, options.quick));
    let whole_best = row(whole.name, tune(&whole, options.quick));
    let smol_best = row(smol.name, tune(&smol, options.quick));
    let large_best = row(smol_large.name, tune(&smol_large, options.quick));
    println!("{tuned}");

    let mut bench = Bench::new("tcp", options.clone());
    let mut frames = (frames.name, |trial: &mut Trial| sample(trial, (frames.join)(frames_best)));
    let single = (single.name, |trial: &mut Trial| sample(trial, (single.join)(single_best)));
    let mut whole = (whole.name, |trial: &mut Trial| sample(trial, (whole.join)(whole_best)));
    let mut smol = (smol.name, |trial: &mut Trial| sample(trial, (smol.join)(smol_best)));
    let smol_large = (smol_large.name, |trial: &mut Trial| sample(trial, (smol_large.join)(large_best)));
    let unit = Unit::GbitPerSecond;
    bench.compare(
        "goodput per core, frame by frame",
        unit,
        (frames.0, &mut frames.1),
        (smol.0, &mut smol.1),
        Target::ratio_at_least(1.5),
    );
    bench.compare(
        "for information: one segment per frame, end to end",
        unit,
        single,
        (smol.0, &mut smol.1),
        Target::None,
    );
    bench.compare(
        "goodput per core, segments passed down whole",
        unit,
        (whole.0, &mut whole.1),
        (smol.0, &mut smol.1),
        Target::ratio_at_least(3.0),
    );
    bench.compare(
        "for information: both with packets of 64 KB",
        unit,
        (whole.0, &mut whole.1),
        smol_large,
        Target::None,
    );
    bench.finish();
}
