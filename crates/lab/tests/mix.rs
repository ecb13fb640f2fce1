//! Flows of several kinds over a network that polices them. Virtual-time results are exact, so they are
//! compared with snapshots.

mod common;

use common::check;
use kiban_lab::engine::{Point, Question, Value};
use kiban_lab::mix::{FlowOutcome, Lecture, Outcome, Plan, Policing, Shaping, run};

const LECTURE: &str = include_str!("../../../scripts/mix/lecture.toml");

fn outcome(plan: &Plan) -> Outcome {
    run(plan, &mut |_| {})
}

fn short(lecture: Lecture) -> Lecture {
    Lecture { seconds: 2.0, all_sites: false, ..lecture }
}

#[test]
fn the_shipped_plan_is_the_lecture_and_reproducible() {
    let mut plan = Plan::read(LECTURE).expect("the plan is good");
    plan.seconds = 3.0;
    let first = outcome(&plan);
    assert_eq!(first, outcome(&plan));
    assert_eq!(first, outcome(&Lecture { seconds: 3.0, ..Lecture::PAPER }.plan()));
    check("mix-lecture.txt", &first.to_string());
    check("mix-lecture.csv", &first.csv());
    for (name, picture) in first.pictures() {
        assert!(picture.starts_with("<svg") && picture.contains("<polygon"), "{name}");
    }
    plan.seed = 2;
    assert_ne!(first.flow("jpeg"), outcome(&plan).flow("jpeg"), "another seed is another lecture");
}

/// Every cell that was sent is either received or lost, and no other cell is received.
#[test]
fn every_cell_is_accounted_for() {
    for shaping in Shaping::ALL {
        let lecture = Lecture { lectures: 3, policed_mbps: 25.0, shaping, ..Lecture::PAPER };
        let outcome = outcome(&short(lecture).plan());
        let lost: u64 = outcome.flows.iter().map(|flow| flow.cells_lost).sum();
        assert_eq!(lost, outcome.network.cells_policed + outcome.network.cells_dropped_full, "{shaping:?}");
        assert!(outcome.flows.iter().all(|flow| flow.cells_strange == 0 && flow.cells > 0));
        assert_eq!(outcome.network.cells_tagged, 0);
    }
}

#[test]
fn a_path_with_room_loses_nothing_if_its_sources_keep_to_its_rate() {
    let outcome = outcome(&short(Lecture::PAPER).plan());
    let lost = |flow: &FlowOutcome| (flow.cells_lost, flow.units_lost, flow.matrices_uncorrectable);
    assert!(outcome.flows.iter().all(|flow| lost(flow) == (0, 0, 0)), "{outcome}");
    let mpeg2 = outcome.flow("mpeg2").expect("the lecture has it");
    assert!((mpeg2.offered_mbps - 7.083).abs() < 0.01, "{}", mpeg2.offered_mbps);
    let audio = outcome.flow("audio").expect("the lecture has it");
    // A packet of 640 octets, which is sent every 20 ms, takes 14 cells.
    assert!((audio.offered_mbps - 0.2968).abs() < 0.004, "{}", audio.offered_mbps);
}

/// A picture sent at the line rate exceeds the path's peak cell rate by itself, at any load. A picture sent
/// at the path's peak rate exceeds it together with the other flows.
#[test]
fn pictures_at_line_rate_are_damaged_at_any_load_unless_shaped() {
    let loss = |shaping| {
        let outcome = outcome(&short(Lecture { shaping, ..Lecture::PAPER }).plan());
        outcome.flow("jpeg").expect("the lecture has it").unit_loss()
    };
    let losses = Shaping::ALL.map(loss);
    assert!(losses[0] > 0.9 && losses[1] > 0.5, "{losses:?}");
    assert_eq!(losses[2..], [0.0, 0.0]);
}

/// If the flows offer more than the contract allows, shaping does not prevent losses: the shaper's queue
/// fills.
#[test]
fn above_the_contract_cells_are_lost_under_any_shaping() {
    for shaping in Shaping::ALL {
        let lecture = Lecture { lectures: 2, policed_mbps: 15.0, shaping, ..Lecture::PAPER };
        let outcome = outcome(&Lecture { seconds: 4.0, ..short(lecture) }.plan());
        let lost: u64 = outcome.flows.iter().map(|flow| flow.cells_lost).sum();
        assert!(lost > 0, "{shaping:?}");
    }
}

#[test]
fn tagged_cells_arrive_if_the_line_is_otherwise_idle() {
    let mut plan = short(Lecture { shaping: Shaping::None, ..Lecture::PAPER }).plan();
    plan.pvcs.iter_mut().for_each(|pvc| pvc.tag = true);
    let outcome = outcome(&plan);
    assert!(outcome.network.cells_tagged > 0 && outcome.network.cells_policed == 0);
    assert!(outcome.flows.iter().all(|flow| flow.cells_lost == 0));
}

#[test]
fn check_octets_correct_occasional_drops_by_a_policer() {
    // MPEG-2 exceeds its contract slightly, so about every 40th cell is dropped.
    let text = |fec: &str| {
        format!(
            "seconds = 3\n[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[pvc]]\nfrom = \"a\"\nto = \"b\"\nmbps = 7.05\ncdvt_us = 10\n\
             [[flow]]\nname = \"m\"\nkind = \"mpeg2\"\nfrom = \"a\"\nto = \"b\"\nfec = \"{fec}\"\n"
        )
    };
    let run = |fec| outcome(&Plan::read(&text(fec)).expect("a good plan")).flows.remove(0);
    let (none, short, long) = (run("none"), run("short"), run("long"));
    // Without check octets, the stream's rate is below the contract.
    assert_eq!((none.cells_lost, none.units_lost), (0, 0));
    assert!(short.cells_lost > 50, "{short:?}");
    assert_eq!(
        (short.units_lost, short.matrices_uncorrectable),
        (0, 0),
        "one lost cell of sixteen is put right"
    );
    assert!(short.matrices_corrected >= short.cells_lost - 1);
    assert_eq!((long.cells_lost, long.units_lost), (0, 0));
}

#[test]
fn time_stamps_recover_the_clock_and_blocks_are_preserved() {
    let text = "seconds = 2\n[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[pvc]]\nfrom = \"a\"\nto = \"b\"\nmbps = 10\n\
        [[flow]]\nname = \"e1\"\nkind = \"constant\"\nfrom = \"a\"\nto = \"b\"\nmbps = 2.048\nstamps = true\n\
        [[flow]]\nname = \"blocks\"\nkind = \"constant\"\nfrom = \"a\"\nto = \"b\"\nmbps = 1.536\nblock_octets = 24\n";
    let outcome = outcome(&Plan::read(text).expect("a good plan"));
    let ppm = outcome.flows[0].clock_ppm.expect("stamps came");
    // The source's rate is rounded to a whole number of bit/s on the line, which shifts its clock by the
    // rounding error.
    assert!(ppm.abs() < 1.0, "{ppm}");
    assert_eq!(outcome.flows.iter().map(|flow| flow.cells_lost + flow.sequence_losses).sum::<u64>(), 0);
}

/// SRTS time stamps compare the source's clock with the network's; the adaptive method observes only the
/// level of the receiver's buffer. Both methods recover the source's rate, and the buffer's level changes
/// little.
#[test]
fn a_clock_offset_is_measured_by_time_stamps_and_by_the_buffer() {
    let text = |ppm: f64| {
        format!(
            "seconds = 20\n[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[pvc]]\nfrom = \"a\"\nto = \"b\"\nmbps = 20\n\
             [[flow]]\nname = \"e1\"\nkind = \"constant\"\nfrom = \"a\"\nto = \"b\"\nmbps = 2.048\nstamps = true\nclock_ppm = {ppm}\n\
             [[flow]]\nname = \"m\"\nkind = \"mpeg2\"\nfrom = \"a\"\nto = \"b\"\nfec = \"long\"\nclock_ppm = {ppm}\n"
        )
    };
    for ppm in [-80.0, 0.0, 50.0] {
        let outcome = outcome(&Plan::read(&text(ppm)).expect("a good plan"));
        let stamps = outcome.flows[0].clock_ppm.expect("stamps came");
        assert!((stamps - ppm).abs() < 1.0, "{ppm}: {stamps}");
        for flow in &outcome.flows {
            let level = flow.recovered_ppm.expect("there was time to settle");
            assert!((level - ppm).abs() < 3.0, "{ppm} {}: {level}", flow.name);
            // The estimate settles within a second. Until then, the buffer's level changes by less than |ppm|
            // microseconds.
            assert!(flow.buffer_below_ms + flow.buffer_above_ms < ppm.abs() * 1e-3 + 0.05, "{flow:?}");
            assert_eq!(flow.slips, 0);
        }
    }
}

#[test]
fn a_tcp_flow_reports_the_variation_of_its_blocks() {
    let lecture = Lecture { bulk: 1, policed_mbps: 40.0, ..Lecture::PAPER };
    let outcome = outcome(&short(lecture).plan());
    let bulk = outcome.flow("bulk").expect("the lecture has it");
    let (Some(p50), Some(p99)) = (bulk.variation_us_p50, bulk.variation_us_p99) else { panic!("{bulk:?}") };
    assert!(p50 <= p99 && p99 > 0.0, "{p50} {p99}");
    // A window of 256 KiB holds four blocks, and the path's RTT is 2.1 ms, so a block waits for at most a few
    // round trips.
    assert!(p99 < 100_000.0, "{p99}");
    assert!(bulk.samples.iter().any(|sample| sample.variation_us_p50.is_some()));
}

#[test]
fn tcp_uses_the_remaining_rate_if_shaped_and_starves_otherwise() {
    let goodput = |shaping| {
        let lecture = Lecture { shaping, bulk: 1, policed_mbps: 40.0, seconds: 4.0, ..short(Lecture::PAPER) };
        let lecture = Lecture { seconds: 4.0, ..lecture };
        outcome(&lecture.plan()).flow("bulk").and_then(|flow| flow.goodput_mbps).expect("TCP ran")
    };
    let [none, _, source, edge] = Shaping::ALL.map(goodput);
    assert!(edge > 15.0 && edge > 2.0 * none, "{none} {source} {edge}");
}

#[test]
fn the_question_reports_its_metrics_and_refuses_impossible_points() {
    let question = Policing;
    let mut point: Point = question
        .parameters()
        .iter()
        .map(|parameter| (parameter.name, parameter.default.clone().expect("all have one")))
        .collect();
    point.0.insert("seconds".into(), Value::Count(1));
    point.0.insert("policed_mbps".into(), Value::Count(8));
    question.validate(&point).expect("a good point");
    let metrics = question.trial(&point, 3).expect("a good point");
    let names: Vec<&str> = question.metrics().iter().map(|metric| metric.name).collect();
    assert!(metrics.figures.keys().all(|name| names.contains(&name.as_str())));
    assert!(metrics.figures["cell_loss"] > 0.0 && metrics.figures["offered_mbps"] > 8.0);
    assert_eq!(metrics, question.trial(&point, 3).expect("a good point"));
    for (name, value) in [
        ("lectures", Value::Count(0)),
        ("policed_mbps", Value::Figure(0.0)),
        ("shaping", Value::Word("x".into())),
        ("fec", Value::Count(1)),
    ] {
        let mut bad = point.clone();
        bad.0.insert(name.into(), value);
        assert!(question.validate(&bad).expect_err(name).to_string().contains(name));
    }
}
