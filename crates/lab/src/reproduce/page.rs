//! The reproductions of all five papers as one HTML page ([`crate::report`]).
//!
//! Contents  the verdicts; the weaknesses; each paper with its figures, its values in three columns
//!           (published, the paper's machine, kiban at its best) and its constants; the measurements on this
//!           machine.
//! Diamonds  in figures mark numbers that the papers publish.

use super::overview::{All, Measured, PaperItem};
use super::weaknesses::Weakness;
use super::wide_area::sequence;
use super::{Constant, Figure, Report, Verdict};
use super::{mechanisms, osi_board};
use crate::report::picture::{Arrow, Bars, Direction, Lines, Mark, Picture, Scale, Sequence};
use crate::report::{Badge, Block, Cell, Document, Grid, Section, Tone};
use kiban_osi::stack::meter::Task;

/// The shortest time that is marked as a wait in a sequence diagram, milliseconds.
const WAIT_MS: f64 = 20.0;

/// Returns the page. `command` is the command that creates it.
pub fn document(all: &All, command: &str) -> Document {
    let mut sections = vec![summary(all), weaknesses(&all.weaknesses)];
    sections.extend([atm_board(all), wide_area(all), rdma_nic(all), via_library(all), osi_board(all)]);
    sections.extend(all.measured.as_ref().map(measured));
    sections.push(reading());
    Document {
        title: "Five papers reproduced".to_owned(),
        lead: all.headline(),
        blocks: vec![
            tally(all.reports().iter().flat_map(|report| &report.rows).map(|row| row.verdict), Block::Filter),
            Block::Figure(verdicts(&all.reports()), String::new()),
            Block::Paragraph(
                "Each value is given three times: as published; as reproduced by kiban with a model of the \
                 paper's machine and one set of constants; and as measured with today's kiban at its best."
                    .to_owned(),
            ),
        ],
        sections,
        is_folded: true,
        has_contents: true,
        foot: vec![
            Document::version_line(),
            format!(
                "Created by: {command}. Everything except the last tables is computed in virtual time and \
                is the same on every machine."
            ),
        ],
        ..Document::default()
    }
}

fn badge(verdict: Verdict) -> Badge {
    let tone = match verdict {
        Verdict::Exact | Verdict::Met => Tone::Good,
        Verdict::Fitted => Tone::Fit,
        Verdict::Missed => Tone::Bad,
        Verdict::Doubtful | Verdict::Conflict => Tone::Doubt,
        Verdict::Ours => Tone::Own,
    };
    Badge::new(tone, verdict.word())
}

/// Returns the number of values by verdict, as badges or as the page's filter.
fn tally(verdicts: impl Iterator<Item = Verdict> + Clone, block: fn(Vec<(Badge, String)>) -> Block) -> Block {
    let all = [
        (Verdict::Exact, "derived and equal in all published digits"),
        (Verdict::Met, "reproduced and not used in any fit"),
        (Verdict::Fitted, "reproduced because a constant was fitted"),
        (Verdict::Missed, "not reproduced"),
        (Verdict::Conflict, "contradicted by their own paper"),
        (Verdict::Doubtful, "doubtful in their paper"),
        (Verdict::Ours, "without a published value"),
    ];
    let badges = all.into_iter().filter_map(|(verdict, words)| {
        let count = verdicts.clone().filter(|other| *other == verdict).count();
        (count > 0).then(|| (badge(verdict), format!("{count} {words}")))
    });
    block(badges.collect())
}

/// Returns the picture of the verdicts on each paper.
fn verdicts(reports: &[&Report]) -> Picture {
    // The numbers of the colours that come closest to the badges.
    let parts: [(&str, usize, &[Verdict]); 5] = [
        ("reproduced", 2, &[Verdict::Exact, Verdict::Met]),
        ("fitted", 0, &[Verdict::Fitted]),
        ("missed", 1, &[Verdict::Missed]),
        ("conflict or doubtful", 4, &[Verdict::Conflict, Verdict::Doubtful]),
        ("not published", 3, &[Verdict::Ours]),
    ];
    let counts = |report: &&Report| {
        let count = |of: &[Verdict]| report.rows.iter().filter(|row| of.contains(&row.verdict)).count();
        (title(report.paper).to_owned(), parts.iter().map(|(_, _, of)| count(of) as f64).collect())
    };
    let bars = Bars {
        name: "verdicts-by-paper".to_owned(),
        title: "Values of each paper, by verdict".to_owned(),
        description: "The number of values with each verdict, one bar for each paper.".to_owned(),
        unit: "values".to_owned(),
        parts: parts.iter().map(|(part, colour, _)| ((*part).to_owned(), *colour)).collect(),
        cases: reports.iter().map(counts).collect(),
    };
    bars.picture()
}

// ---- The overview

fn title(paper: &str) -> &'static str {
    match paper {
        "atm-board" => "[1] The ATM board, 1995",
        "wide-area-atm" => "[2] TCP across a wide ATM network, 1996",
        "rdma-nic" => "[3] The RDMA NIC, 2008",
        "via-library" => "[4] Waiting in a VI library, 2000",
        _ => "[5] The OSI board, 1992",
    }
}

fn summary(all: &All) -> Section {
    let mut grid = Grid::new("Verdicts on all tables and figures", &["paper", "place", "verdict", "values"]);
    for place in &all.summary {
        let PaperItem { paper, place: name, verdict, note, .. } = place;
        let said = match verdict {
            Some(verdict) => Cell::from(badge(*verdict)),
            None => Cell::from(Badge::new(Tone::Plain, "not made")),
        };
        let note = note.clone().map(|note| if verdict.is_some() { format!("missed: {note}") } else { note });
        grid.row([
            Cell::from(title(paper)).to(title(paper)),
            name.as_str().into(),
            said,
            Cell::from(place.counts()).with_note(note),
        ]);
    }
    grid.remarks.push("The verdict on a table or figure is the worst of its values.".to_owned());
    Section { heading: "Verdicts".to_owned(), blocks: vec![Block::Grid(grid)] }
}

fn weaknesses(weaknesses: &[Weakness]) -> Section {
    let heads = ["paper", "weakness", "kiban as the paper's machine", "kiban at its best", "gone"];
    let mut grid = Grid::new("The main weakness of each machine, then and now", &heads);
    for Weakness { paper, what, then, best, gone, bound, how, kept } in weaknesses {
        let (tone, word) = if *gone { (Tone::Good, "gone") } else { (Tone::Bad, "REMAINS") };
        grid.row([
            Cell::from(title(paper)).to(title(paper)),
            Cell::from(*what),
            then.as_str().into(),
            Cell::from(best.as_str()).with_note(Some((*how).to_owned())),
            Cell::from(Badge::new(tone, word)).with_note(Some(format!(
                "The weakness counts as gone if {bound}. The result is recorded in {kept}."
            ))),
        ]);
    }
    Section {
        heading: "Weaknesses removed".to_owned(),
        blocks: vec![
            Block::Paragraph(
                "The line, hosts, clocks or load are those of the paper; only the \
                implementation is today's kiban."
                    .to_owned(),
            ),
            Block::Grid(grid),
        ],
    }
}

// ---- A paper

/// Returns the table of values: published, the paper's machine, kiban at its best.
fn values(report: &Report) -> Grid {
    let heads =
        ["place", "value", "#published", "#kiban as the paper's machine", "#kiban at its best", "verdict"];
    let mut grid = Grid::new(format!("{}: values", title(report.paper)), &heads);
    for row in &report.rows {
        let dash = || "–".to_owned();
        // The paper's machines had no adaptive waiting.
        let (then, best) = match &row.today {
            None if row.place == "Adaptive" => (dash(), row.here.clone()),
            today => (row.here.clone(), today.clone().unwrap_or_else(dash)),
        };
        let published = if row.published.is_empty() { dash() } else { row.published.clone() };
        grid.row([
            // Prevent a line break within "Table 2".
            Cell::from(row.place.replace(' ', "\u{a0}")),
            Cell::from(row.what.as_str()).with_note(row.note.clone()),
            published.into(),
            then.into(),
            best.into(),
            badge(row.verdict).into(),
        ]);
    }
    grid.remarks.push(format!("Kiban at its best: {}.", report.today));
    grid
}

fn constants(report: &Report) -> Block {
    let mut grid =
        Grid::new(format!("{}: constants", title(report.paper)), &["constant", "#value", "origin", "why"]);
    for Constant { name, value, origin, why } in &report.constants {
        let tone = match *origin {
            "sourced" => Tone::Good,
            "fitted" => Tone::Fit,
            _ => Tone::Doubt,
        };
        grid.row([Cell::from(*name), value.as_str().into(), Badge::new(tone, *origin).into(), (*why).into()]);
    }
    let count = |of: &str| report.constants.iter().filter(|constant| constant.origin == of).count();
    let name = format!(
        "Constants, one set for all points: {} sourced, {} fitted, {} assumed",
        count("sourced"),
        count("fitted"),
        count("assumed")
    );
    Block::Collapsed(name, vec![Block::Grid(grid)])
}

/// Returns the section of a paper: introduction, figures, values, constants, further blocks.
fn paper(report: &Report, about: &str, figures: Vec<Block>, more: Vec<Block>) -> Section {
    let mut blocks = vec![
        Block::Paragraph(about.to_owned()),
        Block::Paragraph(format!("Source: {}.", report.source)),
        tally(report.rows.iter().map(|row| row.verdict), Block::Badges),
    ];
    blocks.extend(figures);
    blocks.push(Block::Grid(values(report)));
    blocks.push(constants(report));
    blocks.extend(more);
    blocks.push(Block::Command(format!("kiban reproduce {}", report.paper)));
    Section { heading: title(report.paper).to_owned(), blocks }
}

/// Returns the names of all series of a paper. A series has the same colour in all figures of the paper.
fn series(report: &Report) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for curve in report.figures.iter().flat_map(|figure| &figure.curves) {
        if !names.contains(&curve.name.as_str()) {
            names.push(&curve.name);
        }
    }
    names
}

/// Returns the line chart of a figure, with a name that is unique in the page.
fn lines(report: &Report, figure: &Figure, x: Scale, y: Scale, marks: &[(f64, f64, &str)]) -> Lines {
    let marks = marks.iter().map(|&(x, y, what)| Mark { x, y, what: what.to_owned() });
    let name = format!("{}-{}", report.paper, figure.name);
    let mut lines = Lines { name, marks: marks.collect(), ..figure.lines(x, y) };
    let series = series(report);
    for line in &mut lines.lines {
        line.series = series.iter().position(|name| *name == line.name).expect("every curve is a series");
    }
    lines
}

/// Returns the drawings of a report's figures. Figures that `known` does not draw have linear axes.
fn figure_blocks(report: &Report, known: impl Fn(&Figure) -> Option<Block>) -> Vec<Block> {
    let plain = |figure: &Figure| {
        let lines = lines(report, figure, Scale::Linear, Scale::Linear, &[]);
        Block::Figure(lines.picture(), String::new())
    };
    report.figures.iter().map(|figure| known(figure).unwrap_or_else(|| plain(figure))).collect()
}

fn atm_board(all: &All) -> Section {
    let report = &all.atm_board;
    // The values differ by only a few percent, so the axis does not begin at zero; its label says so.
    const FROM: Scale = Scale::From(60.0);
    let figures = figure_blocks(report, |figure| {
        let (x, marks, says): (_, &[(f64, f64, &str)], _) = match figure.name {
            "figure-6" => (
                Scale::Doublings,
                &[(256.0, 133.4, "best")],
                "From 48 KB on, the window hardly matters. The gap between the best result of 1995 and \
                the limit is the pause of the segmentation chip, which was fitted to it.",
            ),
            "figure-7" => (
                Scale::Linear,
                &[(2.0, 131.2, "peak at 16 KB")],
                "The more sessions and the larger their windows, the sooner content pages run out. At 256 \
                KB, the sixteenth session gets none.",
            ),
            "figure-7-today" => (
                Scale::Linear,
                &[],
                "Without the model of the board's processor, pages do not run out at any window.",
            ),
            _ => return None,
        };
        Some(Block::Figure(lines(report, figure, x, FROM, marks).picture(), says.to_owned()))
    });
    let whole = all.mechanisms.first();
    let cases = all.mechanisms.iter().filter_map(|row| {
        let name = row.without.map_or("the paper's board".to_owned(), |name| format!("without {name}"));
        Some((name, vec![row.points.first()?.mbps]))
    });
    let bars = Bars {
        name: "atm-board-mechanisms".to_owned(),
        title: "Effect of switching off each of the five mechanisms: one session, window 256 KB".to_owned(),
        description: format!(
            "The throughput of the modelled board is {:.1} Mbit/s with all five mechanisms.",
            whole.and_then(|row| row.points.first()).map_or(0.0, |point| point.mbps)
        ),
        unit: "Mbit/s".to_owned(),
        parts: vec![("throughput".to_owned(), 0)],
        cases: cases.collect(),
    };
    let more = Section {
        heading: "Without each mechanism".to_owned(),
        blocks: vec![
            Block::Paragraph(
                "The paper publishes no results without a mechanism: these results depend on assumed \
                constants and affect no verdict."
                    .to_owned(),
            ),
            Block::Figure(bars.picture(), String::new()),
            Block::Grid((&mechanisms::modelled_table(&all.mechanisms)).into()),
        ],
    };
    let about = "TCP/IP runs entirely on a board beside its host, over ATM at 155 Mbit/s. The board has \
        separate memories for headers and content, and computes checksums while it moves data. A switch \
        connects two such boards.";
    paper(report, about, figures, vec![Block::Section(more)])
}

fn wide_area(all: &All) -> Section {
    let made = &all.wide_area_atm;
    let report = &made.report;
    let mut figures = Vec::new();
    // Show the map of kiban at its best after the two maps with which it is compared, and before the map of
    // long messages.
    let (beside, long) = made.maps.split_at(made.maps.len().min(2));
    for map in beside.iter().chain([&all.map_best]).chain(long) {
        let says = match map.name {
            "map" => {
                "These are the TCP rules of the time. In dark cells, throughput has collapsed: the writer \
                waits for the reader's delayed-ACK timer 20 times per second."
            }
            "map-today" => {
                "These are today's TCP rules on the same workstations. The writer never waits for a timer; \
                writer and reader alternate instead, because such a buffer holds at most two segments."
            }
            "map-best" => {
                "This is kiban at its best on the same workstations. It follows all their rules except one: \
                the writer continues as soon as there is room. No cell collapses."
            }
            _ => {
                "The vertical axis shows longer messages. Throughput is best at multiples of the MSS, 9140 \
                bytes, and drops just above them."
            }
        };
        let mut picture = map.picture();
        picture.name = format!("{}-{}", report.paper, map.name);
        figures.push(Block::Figure(picture, says.to_owned()));
    }
    for (number, sequence) in made.sequences.iter().enumerate() {
        figures.push(Block::Figure(drawn(report, number, sequence).picture(), String::new()));
    }
    figures.extend(figure_blocks(report, |_| None));
    let about = "The paper measures TCP between workstations over ATM: how delay grows with distance, how \
        throughput depends on message length and socket buffers, and in which region throughput collapses \
        to a thirtieth.";
    paper(report, about, figures, Vec::new())
}

/// Draws figure 7 with the writer's host on the left.
fn drawn(report: &Report, number: usize, made: &sequence::Sequence) -> Sequence {
    let arrow = |line: &sequence::Line| {
        let (direction, what) = match line.bytes {
            Some(bytes) => (Direction::Right, format!("{bytes} bytes from {}", line.sequence)),
            None => (Direction::Left, format!("acknowledged {}", line.sequence)),
        };
        let waits = direction == Direction::Left && line.after_ms >= WAIT_MS;
        Arrow {
            after_ms: line.after_ms,
            direction,
            what,
            wait: waits.then(|| "the reader's delayed acknowledgement".to_owned()),
        }
    };
    Sequence {
        name: format!("{}-sequence-{}", report.paper, number + 1),
        title: format!(
            "{}: buffers {}, message {}, {:.1} Mbit/s",
            made.title, made.buffer, made.message, made.mbps
        ),
        description: format!(
            "The packets on the line, captured at the writer's host. {}",
            match made.stall_ms {
                Some((least, most)) => format!("Acknowledgements are delayed by {least:.1} to {most:.1} ms."),
                None => format!("No acknowledgement takes longer than {:.1} ms.", made.answer_ms_max),
            }
        ),
        ends: ["writer".to_owned(), "reader".to_owned()],
        arrows: made.lines.iter().map(arrow).collect(),
    }
}

fn rdma_nic(all: &All) -> Section {
    let report = &all.rdma_nic.report;
    let figures = figure_blocks(report, |figure| {
        // The maxima that the paper gives are for long messages.
        let (mib, says) = match figure.name {
            "figure-10-send" => (
                881.0,
                "2008 is the NIC of the paper; in the other curves, its blocks work on several segments at \
                 once. Throughput dips where a message needs one more segment.",
            ),
            "figure-10-receive" => (
                795.0,
                "The receiver performs look-ups for every segment, so throughput dips where a message first \
                 needs two segments. When overlapped, the look-ups cost no time.",
            ),
            _ => return None,
        };
        let marks = [(65_536.0, mib, "maximum")];
        let mut lines = lines(report, figure, Scale::Doublings, Scale::Linear, &marks);
        // The curves of the overlapped blocks are dashed.
        lines.lines.iter_mut().skip(1).for_each(|line| line.dashed = true);
        Some(Block::Figure(lines.picture(), says.to_owned()))
    });
    let more = all.rdma_nic.tables().iter().map(|table| Block::Grid(table.into())).collect();
    let about = "The paper describes an RDMA network interface without a processor: 64 bits at 125 MHz, \
        with iWARP's operations over a lossless Ethernet layer. The model counts every step of every block \
        in clocks.";
    paper(report, about, figures, more)
}

fn via_library(all: &All) -> Section {
    let report = &all.via_library.report;
    let figures = figure_blocks(report, |figure| {
        let marks = [(50.0, 25.0, "100 us"), (50.0, 31.0, "140 us"), (50.0, 50.0, "300 us")];
        let says = "A process that polls for longer sleeps only when packets are farther apart. Adaptive \
            waiting sleeps at once where polling would not pay.";
        let lines = lines(report, figure, Scale::Linear, Scale::Linear, &marks);
        (figure.name == "figure-2").then(|| Block::Figure(lines.picture(), says.to_owned()))
    });
    let more = all.via_library.tables().iter().map(|table| Block::Grid(table.into())).collect();
    let about = "A process waits for packets over the Virtual Interface Architecture: it polls for a set \
        time, then sleeps. Longer polling costs processor time but loses fewer packets; the receive buffer \
        determines how many.";
    paper(
        report,
        about,
        figures,
        vec![Block::Collapsed("Every cell of table 3, and kiban's adaptive waiting".to_owned(), more)],
    )
}

fn osi_board(all: &All) -> Section {
    let made = &all.osi_board;
    let report = &made.report;
    let mut figures = figure_blocks(report, |figure| {
        let (x, marks, says): (_, &[(f64, f64, &str)], _) = match figure.name {
            "figure-2a" => (
                Scale::Linear,
                &[(4000.0, 1.5, "line, from here on"), (8000.0, 4.0, "loopback")],
                "Loopback rates are doubled, as in the paper: one processor does the work of both ends.",
            ),
            "figure-2b" => (
                Scale::Doublings,
                &[(2048.0, 1.5, "line"), (2048.0, 4.0, "loopback"), (512.0, 2.5, "loopback, from here on")],
                "On the line, the lower module's cost per frame makes throughput proportional to the \
                TPDU size.",
            ),
            _ => return None,
        };
        Some(Block::Figure(lines(report, figure, x, Scale::Linear, marks).picture(), says.to_owned()))
    });
    let cases = made
        .figure_3
        .iter()
        .map(|tasks| (format!("{}, F-DATA {}", tasks.end, tasks.fdata_bytes), tasks.seconds.to_vec()));
    let bars = Bars {
        name: "osi-board-figure-3".to_owned(),
        title: "figure 3: time of each task on the line, TPDU 2048, s".to_owned(),
        description: "Processor time by task for a file of 2 MiB. When F-DATA shrinks from 8000 to 2000 \
            bytes, the times of FTAM and presentation grow, and those of session and transport hardly \
            change. The sender's lower interface takes long where the line is the limit."
            .to_owned(),
        unit: "seconds".to_owned(),
        parts: Task::ALL.iter().enumerate().map(|(at, task)| (task.name().to_owned(), at)).collect(),
        cases: cases.collect(),
    };
    figures.push(Block::Figure(
        bars.picture(),
        "LIF, the interface to the lower module, polls continuously while the line is full.".to_owned(),
    ));
    let about = "A board runs all seven layers of OSI, up to file transfer. User data is not copied between \
        layers: the tasks pass pointers. The PC runs only the FTAM user.";
    paper(report, about, figures, Vec::new())
}

// ---- The rest

fn measured(Measured { environment, mechanisms, waiting, files }: &Measured) -> Section {
    let mut blocks = vec![
        Block::Badges(vec![(Badge::new(Tone::Plain, "measured"), environment.line())]),
        Block::Paragraph(
            "Measured in real time while this page was made: the results differ between machines and runs. \
             No verdict above uses them."
                .to_owned(),
        ),
    ];
    blocks.push(Block::Grid((&mechanisms::measured_table(mechanisms)).into()));
    match waiting {
        Ok(tables) => blocks.extend(tables.tables().iter().map(|table| Block::Grid(table.into()))),
        Err(why) => blocks.push(Block::Paragraph(format!("cannot measure the wait policies: {why}"))),
    }
    blocks.push(Block::Grid((&osi_board::measured::table(files)).into()));
    Section { heading: "Measured on this machine".to_owned(), blocks }
}

fn reading() -> Section {
    let mut grid = Grid::new("Verdicts", &["verdict", "meaning"]);
    for (verdict, words) in [
        (Verdict::Exact, "the value is derived and equals all published digits"),
        (Verdict::Met, "the value is reproduced and was not used in any fit"),
        (
            Verdict::Fitted,
            "a constant was fitted to the value; this explains the value but does not confirm it",
        ),
        (Verdict::Missed, "the value is not reproduced; the row says why"),
        (Verdict::Conflict, "the paper contradicts itself; its readings are shown beside the result"),
        (Verdict::Doubtful, "the published value is uncertain; no conclusion is drawn"),
        (Verdict::Ours, "the paper publishes no value; the result confirms a claim made by kiban"),
    ] {
        grid.row([Cell::from(badge(verdict)), words.into()]);
    }
    Section {
        heading: "How to read this".to_owned(),
        blocks: vec![
            Block::Grid(grid),
            Block::Paragraph(
                "Virtual-time results are deterministic. A constant is sourced (published), fitted (to the \
                 value that it names) or assumed; each paper has one set of constants for all its points."
                    .to_owned(),
            ),
        ],
    }
}
