//! The screen of `kiban top`.
//!
//! Narrow  columns of tables that do not fit are left out, and parts of the lines above them move to another
//!         line, so that nothing is clipped from 60 columns on.

use super::samples::{Samples, connection_key, port_key, service_key, shard_key};
use crate::board::control::{circuit_cells, circuits_table, guest_lines, link_cell};
use kiban_lab::Table;
use kiban_lab::table::{counted, cut};
use kiban_service::status::{Connection, Port, Service, Use};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline};
use std::collections::VecDeque;

/// What the user chose to see.
#[derive(Default)]
pub(super) struct View {
    /// Only rows that contain this text are shown.
    pub(super) filter: String,
    /// Whether keys extend the filter.
    pub(super) is_typing: bool,
    /// Whether tables are sorted by name, and not by rate.
    pub(super) by_name: bool,
    /// The number of lines by which the tables are scrolled.
    pub(super) scrolled: u16,
    /// The key of the row that is highlighted.
    pub(super) selected: Option<String>,
    /// Where the tables were drawn, and what their lines are.
    pub(super) area: Rect,
    pub(super) lines: Vec<LineKind>,
    pub(super) shows_help: bool,
    pub(super) has_colours: bool,
}

/// What a line of the tables is, for clicks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LineKind {
    /// The heads of the columns; the first column has this width.
    Heads(usize),
    /// A row, by its key.
    Row(String),
    Other,
}

/// A table of the screen.
struct Listing<'a> {
    table: Table,
    /// The heads of columns that are left out on a narrow screen, the first one first.
    spare: &'static [&'static str],
    /// The key of each row.
    keys: Vec<String>,
    view: &'a View,
}

impl Listing<'_> {
    /// Adds a row, unless the filter hides it; returns whether it was added.
    fn row<const N: usize>(&mut self, key: String, cells: [String; N], more: &[String]) -> bool {
        let filter = self.view.filter.to_lowercase();
        let passes = cells.iter().chain(more).any(|cell| cell.to_lowercase().contains(&filter));
        if passes {
            self.table.row(cells);
            self.keys.push(key);
        }
        passes
    }
}

/// Colours that differ in lightness, too, for colour-blind users.
const RECEIVED: Color = Color::Cyan;
const SENT: Color = Color::Yellow;

const HELP: [&str; 14] = [
    "?, h      this help",
    "/         show only rows that contain a text;",
    "          Enter ends it, Esc removes it",
    "s         sort by name, or by rate",
    "Up, Down  scroll; PageUp, PageDown, Home too",
    "q, Esc    quit",
    "mouse     the wheel scrolls; click on a row to",
    "          highlight it, or on the head of a column",
    "          to sort: by name on the first, by rate",
    "          on others",
    "",
    "Graphs have the newest second on the right. Memory",
    "is shown in red from 90 % on. A narrow terminal",
    "shows fewer columns.",
];

/// A remark on a service with forwarded ports.
const SPLICED: &str = "loopback connections to forwarded ports go from socket to socket: they are counted \
                       in this row, not in the ports, the graphs and the TCP sessions";

/// Formats a value with three digits and a prefix: `26.1 Gbit/s`.
fn scaled(value: f64, unit: &str) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    // From 999.5 on, three digits show the next prefix.
    let Some((scale, prefix)) = prefixes.into_iter().find(|(scale, _)| value >= scale * 0.9995) else {
        return format!("{value:.0} {unit}");
    };
    let value = value / scale;
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {prefix}{unit}")
}

fn bits(value: f64) -> String {
    scaled(value, "bit/s")
}

/// Returns a round value that is at least `peak`: 1, 2 or 5 times a power of ten.
fn scale_of(peak: u64) -> u64 {
    let mut power = 1u64;
    loop {
        for factor in [1, 2, 5] {
            match power.checked_mul(factor) {
                Some(scale) if scale >= peak => return scale,
                Some(_) => {}
                None => return u64::MAX,
            }
        }
        power = power.saturating_mul(10);
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, samples: &Samples, view: &mut View) {
    let whole = frame.area();
    let summary = summary(samples, view.has_colours, whole.width);
    let [above, middle, below, keys] = Layout::vertical([
        Constraint::Length((whole.height / 4).clamp(5, 12)),
        Constraint::Length(summary.len() as u16 + 1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(whole);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(above);
    let colour = |colour: Color| if view.has_colours { Style::new().fg(colour) } else { Style::new() };
    for (area, way, name, style) in
        [(left, 0, "received", colour(RECEIVED)), (right, 1, "sent", colour(SENT))]
    {
        graph(frame, area, &samples.bits[way], name, style);
    }
    frame.render_widget(Paragraph::new(summary), middle);
    let (lines, kinds): (Vec<Line<'static>>, Vec<LineKind>) =
        tables(samples, view, below.width).into_iter().unzip();
    let (count, height) = (lines.len(), usize::from(below.height));
    view.scrolled = view.scrolled.min(u16::try_from(count.saturating_sub(height)).unwrap_or(u16::MAX));
    (view.area, view.lines) = (below, kinds);
    frame.render_widget(Paragraph::new(lines).scroll((view.scrolled, 0)), below);
    let order = if view.by_name { "name" } else { "rate" };
    let typed = match (view.is_typing, view.filter.as_str()) {
        (true, text) => format!("filter: {text}_"),
        (false, "") => "/ filter".to_owned(),
        (false, text) => format!("filter: {text} (Esc removes it)"),
    };
    let mut words = format!("? help  q quit  s by {order}  {typed}");
    if count > height {
        let first = usize::from(view.scrolled);
        words += &format!("  lines {}-{} of {count}", first + 1, first + height);
    }
    frame.render_widget(Paragraph::new(cut(&words, keys.width.into())), keys);
    if view.shows_help {
        let width = HELP.iter().map(|line| line.len()).max().unwrap_or(0) as u16 + 2;
        let help = Rect::new(
            whole.width.saturating_sub(width) / 2,
            whole.height.saturating_sub(HELP.len() as u16 + 2) / 2,
            width.min(whole.width),
            (HELP.len() as u16 + 2).min(whole.height),
        );
        frame.render_widget(Clear, help);
        frame.render_widget(
            Paragraph::new(HELP.join("\n")).block(Block::bordered().title(" kiban top ")),
            help,
        );
    }
}

/// Draws the graph of a direction, with the current rate above it, and below it the rate of its upper edge.
fn graph(frame: &mut Frame<'_>, area: Rect, history: &VecDeque<u64>, name: &str, style: Style) {
    let now = history.front().map_or("-".to_owned(), |now| bits(*now as f64));
    let block = Block::bordered().title(format!(" {name} {now} "));
    let width = usize::from(block.inner(area).width);
    let shown: Vec<u64> = history.iter().take(width).rev().copied().collect();
    let scale = scale_of(shown.iter().copied().max().unwrap_or(0));
    // The graph is right-aligned: the newest sample is in the last column.
    let empty = width.saturating_sub(shown.len());
    let columns: Vec<u64> = std::iter::repeat_n(0, empty).chain(shown).collect();
    let bars = Sparkline::default().data(&columns).max(scale).style(style);
    let below = format!(" scale 0 to {} ", bits(scale as f64));
    frame.render_widget(bars.block(block.title_bottom(below)), area);
}

/// Returns the lines about CPU, memory and sessions.
fn summary(samples: &Samples, has_colours: bool, width: u16) -> Vec<Line<'static>> {
    let status = &samples.status;
    let percent = |used: &Use| 100.0 * used.used as f64 / used.capacity.max(1) as f64;
    let part = |name: &str, used: &Use| {
        let bytes = indicatif::BinaryBytes;
        let text =
            format!("{name} {} of {} ({:.0} %)", bytes(used.used), bytes(used.capacity), percent(used));
        let is_full = has_colours && percent(used) >= 90.0;
        Span::styled(text, if is_full { Style::new().fg(Color::Red) } else { Style::new() })
    };
    let cores = samples.cores.map_or("-".to_owned(), |cores| format!("{:.0} %", cores * 100.0));
    let uptime = indicatif::HumanDuration(std::time::Duration::from_secs_f64(status.uptime_seconds));
    let memory = &status.memory;
    let all: u64 = status.sessions.values().sum();
    let by_state = status.sessions.iter().map(|(state, count)| format!("{count} {state}"));
    let by_state = by_state.enumerate().map(|(number, state)| match number {
        0 => format!("{}: {state}", counted(all, "session")),
        _ => state,
    });
    let mut sessions: Vec<Span<'_>> = by_state.map(Span::raw).collect();
    if sessions.is_empty() {
        sessions.push(Span::raw("no sessions"));
    }
    let board = [
        format!("{}: {}", status.name, status.state),
        format!("up {uptime}"),
        format!("process {}", status.pid),
        format!("CPU {cores} of a core"),
    ];
    let memory = vec![
        part("memory: transmit", &memory.transmit_bytes),
        part("receive", &memory.receive_bytes),
        Span::raw(format!("PDUs {} of {}", memory.pdus.used, memory.pdus.capacity)),
    ];
    let groups = [board.map(Span::raw).to_vec(), memory, sessions];
    groups.into_iter().flat_map(|parts| flow(parts, width)).collect()
}

/// Puts parts with commas between them into lines of at most this width.
fn flow(parts: Vec<Span<'static>>, width: u16) -> Vec<Line<'static>> {
    let (mut lines, mut line) = (Vec::new(), Line::default());
    for part in parts {
        if line.width() > 0 {
            let is_full = line.width() + ", ".len() + part.width() + ",".len() > usize::from(width);
            line.push_span(if is_full { "," } else { ", " });
            if is_full {
                lines.push(std::mem::take(&mut line));
            }
        }
        line.push_span(part);
    }
    lines.push(line);
    lines
}

/// Returns the lines of all tables.
fn tables(samples: &Samples, view: &View, width: u16) -> Vec<(Line<'static>, LineKind)> {
    let mut lines = Vec::new();
    // Sessions come before services: on a small screen, the busiest ones are seen without scrolling.
    let listings = [ports, connections, services, circuits, shards].map(|listing| listing(samples, view));
    for Listing { table, spare, keys, .. } in listings {
        if table.is_empty() {
            continue;
        }
        if !lines.is_empty() {
            lines.push((Line::default(), LineKind::Other));
        }
        let text = table.fit(width.into(), spare).to_string();
        let first = text.lines().nth(2).map_or(0, |rule| rule.find(' ').unwrap_or(rule.len()));
        let mut keys = keys.into_iter();
        for (number, line) in text.lines().enumerate() {
            let kind = match number {
                0 | 2 => LineKind::Other,
                1 => LineKind::Heads(first),
                // Remarks follow the rows.
                _ => keys.next().map_or(LineKind::Other, LineKind::Row),
            };
            let style = match &kind {
                _ if number < 2 => Style::new().add_modifier(Modifier::BOLD),
                LineKind::Row(key) if view.selected.as_ref() == Some(key) => {
                    Style::new().add_modifier(Modifier::REVERSED)
                }
                _ => Style::new(),
            };
            lines.push((Line::from(Span::styled(line.to_owned(), style)), kind));
        }
    }
    lines
}

impl View {
    /// Handles a click on a cell of the screen: on a row, which is highlighted, or on the head of a column.
    pub(super) fn click(&mut self, column: u16, row: u16) {
        if !self.area.contains(Position::new(column, row)) {
            return;
        }
        match self.lines.get(usize::from(row - self.area.y + self.scrolled)) {
            Some(LineKind::Heads(first)) => self.by_name = usize::from(column - self.area.x) <= *first,
            // A second click ends the highlight.
            Some(LineKind::Row(key)) => {
                self.selected = Some(key.clone()).filter(|key| self.selected.as_ref() != Some(key));
            }
            Some(LineKind::Other) | None => {}
        }
    }
}

/// Returns items by name or by rate, the highest rate first.
fn ordered<'a, T, N: Ord>(
    items: &'a [T],
    view: &View,
    name: impl Fn(&'a T) -> N,
    rate: impl Fn(&T) -> f64,
) -> Vec<&'a T> {
    let mut items: Vec<&T> = items.iter().collect();
    match view.by_name {
        true => items.sort_by_key(|item| name(item)),
        false => items.sort_by(|one, other| rate(other).total_cmp(&rate(one))),
    }
    items
}

/// Returns the sum of the rates of both directions; 0 if they are not known.
fn sum(rates: Option<[f64; 2]>) -> f64 {
    rates.map_or(0.0, |[received, sent]| received + sent)
}

/// Returns the cells of the rates of both directions.
fn rate_cells(rates: Option<[f64; 2]>, unit: &str) -> [String; 2] {
    rates.map_or(["-".into(), "-".into()], |rates| rates.map(|rate| scaled(rate, unit)))
}

fn ports<'a>(samples: &Samples, view: &'a View) -> Listing<'a> {
    let table = Table::new("ports")
        .text_column("port")
        .text_column("link")
        .text_column("state")
        .number_column("received")
        .number_column("sent")
        .number_column("packets in")
        .number_column("out")
        .number_column("queued")
        .number_column("lost");
    let spare = &["packets in", "out", "link", "queued"];
    let mut listing = Listing { table, spare, keys: Vec::new(), view };
    let rates = |port: &Port| samples.port_bits(&port.name);
    for port in ordered(&samples.status.ports, view, |port| &port.name, |port| sum(rates(port))) {
        let link = link_cell(&mut listing.table, &port.name, &port.link);
        let [received, sent] = rate_cells(rates(port), "bit/s");
        let [packets_in, packets_out] = rate_cells(samples.port_units(&port.name), "/s");
        let row = [
            port.name.clone(),
            link,
            port.state.clone(),
            received,
            sent,
            packets_in,
            packets_out,
            port.waiting.to_string(),
            port.lost.values().sum::<u64>().to_string(),
        ];
        listing.row(port_key(&port.name), row, &[]);
    }
    listing
}

fn services<'a>(samples: &Samples, view: &'a View) -> Listing<'a> {
    let table = Table::new("services")
        .text_column("service")
        .text_column("kind")
        .text_column("listens on")
        .text_column("state")
        .number_column("sessions")
        .number_column("received")
        .number_column("sent")
        .number_column("refused");
    let spare = &["state", "kind", "listens on", "refused"];
    let mut listing = Listing { table, spare, keys: Vec::new(), view };
    let rates = |service: &Service| samples.service_bits(service);
    for service in
        ordered(&samples.status.services, view, |service| &service.name, |service| sum(rates(service)))
    {
        let [received, sent] = rate_cells(rates(service), "bit/s");
        let row = [
            service.name.clone(),
            service.kind.clone(),
            service.listen.clone(),
            service.state.clone(),
            format!("{} of {}", service.sessions, service.sessions_max),
            received,
            sent,
            service.counters.get("refused").copied().unwrap_or(0).to_string(),
        ];
        let guest: Vec<String> = service.guest.iter().flat_map(guest_lines).collect();
        if listing.row(service_key(service), row, &guest) {
            let forwards = service
                .guest
                .as_ref()
                .is_some_and(|guest| !guest.tcp.is_empty() || !guest.guest_tcp.is_empty());
            let spliced = forwards.then(|| SPLICED.to_owned());
            for line in guest.iter().chain(&spliced) {
                listing.table.remark(format!("{}  {line}", service.name));
            }
        }
    }
    listing
}

fn connections<'a>(samples: &Samples, view: &'a View) -> Listing<'a> {
    let table = Table::new("TCP sessions")
        .text_column("local")
        .text_column("remote")
        .text_column("state")
        .number_column("received")
        .number_column("sent")
        .number_column("RTT")
        .number_column("cwnd")
        .number_column("retrans");
    let spare = &["state", "cwnd", "local", "RTT"];
    let mut listing = Listing { table, spare, keys: Vec::new(), view };
    let rates = |one: &Connection| samples.connection_bits(one);
    let sum = |one: &Connection| sum(rates(one));
    for one in ordered(&samples.status.connections, view, |one| (&one.local, &one.remote), sum) {
        let [received, sent] = rate_cells(rates(one), "bit/s");
        let rtt = if one.rtt_us == 0 { "-".into() } else { format!("{:.2} ms", one.rtt_us as f64 * 1e-3) };
        let row = [
            one.local.clone(),
            one.remote.clone(),
            one.state.clone(),
            received,
            sent,
            rtt,
            scaled(one.cwnd_bytes as f64, "B"),
            scaled(one.retransmitted_bytes as f64, "B"),
        ];
        listing.row(connection_key(one), row, &[]);
    }
    listing
}

fn circuits<'a>(samples: &Samples, view: &'a View) -> Listing<'a> {
    let mut listing = Listing { table: circuits_table(), spare: &[], keys: Vec::new(), view };
    for circuit in &samples.status.circuits {
        listing.row(format!("circuit {} {}", circuit.port, circuit.vc), circuit_cells(circuit), &[]);
    }
    listing
}

fn shards<'a>(samples: &Samples, view: &'a View) -> Listing<'a> {
    let table = Table::new("shards")
        .text_column("shard")
        .number_column("sessions")
        .number_column("packets in")
        .number_column("out");
    let mut listing = Listing { table, spare: &[], keys: Vec::new(), view };
    for (number, shard) in samples.status.shards.iter().enumerate() {
        let [packets_in, packets_out] = rate_cells(samples.shard_units(number), "/s");
        let row = [number.to_string(), shard.sessions.to_string(), packets_in, packets_out];
        listing.row(shard_key(number), row, &[]);
    }
    listing
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_service::status::{Circuit, Guest, Memory, Shard, Status};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn port(name: &str, bytes: [u64; 2]) -> Port {
        let counters = [("bytes_in", bytes[0]), ("bytes_out", bytes[1]), ("units_in", bytes[0] / 1000)];
        let link_counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
        let link = format!("tap:kiban-{name},offload");
        Port { name: name.into(), link, state: "up".into(), link_counters, ..Port::default() }
    }

    fn service(name: &str, bytes_in: u64) -> Service {
        let counters = [("bytes_in".to_owned(), bytes_in), ("bytes_out".to_owned(), 0)].into();
        Service { name: name.into(), sessions_max: 9, counters, ..Service::default() }
    }

    /// A board at a second of its life: `east` receives 3 Mbit/s and sends 4.5, `west` 26.1 Gbit/s and 0.95
    /// Mbit/s.
    fn status(second: u64, services: Vec<Service>) -> Status {
        let full = Use { capacity: 64 << 20, used: 60 << 20 };
        Status {
            name: "lab".into(),
            state: "running".into(),
            pid: u32::MAX,
            uptime_seconds: second as f64,
            ports: vec![
                port("east", [second * 375_000, second * 562_500]),
                port("west", [second * 3_262_500_000, second * 118_750]),
            ],
            services,
            memory: Memory { receive_bytes: full, ..Memory::default() },
            sessions: [("ESTABLISHED".to_owned(), 3)].into(),
            ..Status::default()
        }
    }

    /// Returns the samples of two statuses, two seconds apart.
    fn two(of: impl Fn(u64) -> Status) -> Samples {
        let mut samples = Samples::new(of(100));
        samples.add(of(102));
        samples
    }

    fn screen(samples: &Samples, view: &mut View, (width, height): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is memory");
        terminal.draw(|frame| draw(frame, samples, view)).expect("it is memory");
        terminal.backend().to_string()
    }

    fn place(shown: &str, words: &str) -> usize {
        shown.find(words).unwrap_or_else(|| panic!("{words}:\n{shown}"))
    }

    #[test]
    fn the_screen_shows_rates_with_units_and_the_busiest_first() {
        let samples = two(|second| {
            status(second, vec![service("idle", 10), service("busy", 10 + 1_250_000 * (second - 100))])
        });
        let mut view = View::default();
        let shown = screen(&samples, &mut view, (120, 40));
        for words in [
            "received 26.1 Gbit/s",
            "scale 0 to 50.0 Gbit/s",
            "sent 5.45 Mbit/s",
            "scale 0 to 10.0 Mbit/s",
            "3.26 M/s",
            "10.0 Mbit/s",
            "60.00 MiB of 64.00 MiB (94 %)",
            "3 sessions: 3 ESTABLISHED",
        ] {
            place(&shown, words);
        }
        assert!(place(&shown, "west ") < place(&shown, "east "), "{shown}");
        assert!(place(&shown, "busy ") < place(&shown, "idle "), "{shown}");
        view.by_name = true;
        let shown = screen(&samples, &mut view, (120, 40));
        assert!(place(&shown, "east ") < place(&shown, "west "), "{shown}");
    }

    /// A board with 64 sessions with long addresses, whose rates differ.
    fn crowded(second: u64) -> Status {
        let one = |number: u64| Connection {
            local: "192.168.100.101:65000".into(),
            remote: format!("192.168.100.102:{}", 60_000 + number),
            state: "established".into(),
            bytes_in: second * number * 1_250_000,
            bytes_out: second * 1_249_000,
            rtt_us: 123_450,
            cwnd_bytes: 650_000,
            retransmitted_bytes: 290_000,
        };
        let sessions = [("ESTABLISHED".to_owned(), 64), ("TIME-WAIT".to_owned(), 120)].into();
        Status {
            connections: (0..64).map(one).collect(),
            sessions,
            ..status(second, vec![service("web", second)])
        }
    }

    fn with_circuits(second: u64) -> Status {
        let one = |number: u64| Circuit {
            port: "east".into(),
            vc: format!("0/{number}"),
            peer: number.is_multiple_of(2).then(|| format!("10.0.0.{number}")),
            state: if number.is_multiple_of(2) { "known".into() } else { "asking".into() },
        };
        Status { circuits: (100..140).map(one).collect(), ..status(second, Vec::new()) }
    }

    fn with_shards(second: u64) -> Status {
        let one = |number: u64| Shard {
            sessions: number,
            units_in: second * 81_300 * number,
            units_out: second,
            ..Shard::default()
        };
        Status { shards: (0..8).map(one).collect(), ..status(second, Vec::new()) }
    }

    /// Every size shows these words whole, at the top or after scrolling.
    #[test]
    fn nothing_is_clipped_from_60_columns_on() {
        for size in [(60, 20), (80, 24), (120, 40), (200, 60)] {
            for (samples, words) in [
                (two(crowded), &["192.168.100.102:60063", "630 Mbit/s", "9.99 Mbit/s", "290 kB", "web"][..]),
                (two(with_circuits), &["0/100", "10.0.0.138", "asking", "InATMARP"]),
                (two(with_shards), &["569 k/s", "sessions", "packets in"]),
            ] {
                let mut view = View { by_name: true, ..View::default() };
                let mut shown = screen(&samples, &mut view, size);
                for words in [
                    "received 26.1 Gbit/s",
                    "scale 0 to 50.0 Gbit/s",
                    "sent 5.45 Mbit/s",
                    "scale 0 to 10.0 Mbit/s",
                    "lab: running, up 2 minutes, process 4294967295,",
                    "of a core",
                    "memory: transmit 0 B of 0 B (0 %)",
                    "receive 60.00 MiB of 64.00 MiB (94 %)",
                    "PDUs 0 of 0",
                    "s by name",
                    "/ filter",
                ] {
                    place(&shown, words);
                }
                let mut end = 0;
                while view.scrolled >= end {
                    end = view.scrolled + 1;
                    view.scrolled += view.area.height;
                    shown += &screen(&samples, &mut view, size);
                }
                for words in words {
                    place(&shown, words);
                }
                let lines = tables(&samples, &view, size.0);
                let widest = lines.iter().map(|(line, _)| line.width()).max().unwrap_or(0);
                assert!(widest <= usize::from(size.0), "{widest} of {size:?}:\n{shown}");
                let rows = lines.iter().filter(|(_, kind)| matches!(kind, LineKind::Row(_))).count();
                let status = &samples.status;
                let expected = status.connections.len() + status.circuits.len() + status.shards.len() + 2;
                assert_eq!(rows, expected + status.services.len(), "{shown}");
            }
        }
        assert!(HELP.iter().all(|line| line.len() <= 58));
    }

    #[test]
    fn all_rates_of_a_frame_agree() {
        // One session has all of the traffic.
        let samples = two(|second| Status {
            ports: vec![port("east", [second * 1_250_000, 0])],
            connections: vec![session("10.0.0.2:9", second * 1_250_000)],
            ..status(second, vec![service("web", second * 1_250_000)])
        });
        let shown = screen(&samples, &mut View::default(), (120, 40));
        // The graph and its scale, the port, the service and the session.
        assert_eq!(shown.matches("10.0 Mbit/s").count(), 5, "{shown}");
    }

    fn session(remote: &str, bytes_in: u64) -> Connection {
        let (local, remote) = ("10.0.0.1:80".to_owned(), remote.to_owned());
        let state = "established".to_owned();
        let rest = Connection {
            rtt_us: 1230,
            cwnd_bytes: 65_000,
            retransmitted_bytes: 2900,
            ..Connection::default()
        };
        Connection { local, remote, state, bytes_in, ..rest }
    }

    #[test]
    fn sessions_are_sorted_by_rate_with_their_rtt_window_and_retransmits() {
        let samples = two(|second| Status {
            connections: vec![session("10.0.0.2:9", 0), session("10.0.0.3:9", 1_250_000 * second)],
            ..status(second, Vec::new())
        });
        let shown = screen(&samples, &mut View::default(), (120, 40));
        assert!(place(&shown, "10.0.0.3:9") < place(&shown, "10.0.0.2:9"), "{shown}");
        for words in ["10.0 Mbit/s", "1.23 ms", "65.0 kB", "2.90 kB"] {
            place(&shown, words);
        }
    }

    #[test]
    fn clicks_sort_by_a_column_and_highlight_a_row() {
        let samples = Samples::new(Status {
            connections: vec![session("10.0.0.2:9", 0)],
            ..status(1, vec![service("web", 10)])
        });
        let mut view = View::default();
        screen(&samples, &mut view, (120, 40));
        let row_of = |view: &View, is_wanted: &dyn Fn(&LineKind) -> bool| {
            let at = view.lines.iter().position(is_wanted).expect("it is shown");
            view.area.y + at as u16
        };
        let heads = row_of(&view, &|line| matches!(line, LineKind::Heads(_)));
        view.click(view.area.x + 1, heads);
        assert!(view.by_name);
        view.click(view.area.x + 40, heads);
        assert!(!view.by_name);
        let key = "session 10.0.0.1:80 10.0.0.2:9";
        let row = row_of(&view, &|line| *line == LineKind::Row(key.to_owned()));
        view.click(view.area.x + 3, row);
        assert_eq!(view.selected.as_deref(), Some(key));
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).expect("it is memory");
        terminal.draw(|frame| draw(frame, &samples, &mut view)).expect("it is memory");
        let cell = terminal.backend().buffer().cell((view.area.x, row)).expect("it is on the screen");
        assert!(cell.modifier.contains(Modifier::REVERSED));
        view.click(view.area.x + 3, row);
        assert_eq!(view.selected, None);
        // Outside the tables, and below the last row.
        view.click(0, 0);
        view.click(view.area.x, view.area.bottom() - 1);
        assert!(view.selected.is_none() && !view.by_name);
    }

    #[test]
    fn a_filter_hides_rows_and_help_names_the_keys() {
        let samples = Samples::new(status(1, vec![service("web", 10)]));
        let mut view = View { filter: "EAST".into(), ..View::default() };
        let shown = screen(&samples, &mut view, (120, 40));
        assert!(shown.contains("east ") && !shown.contains("west ") && !shown.contains("web "), "{shown}");
        view.shows_help = true;
        assert!(screen(&samples, &mut view, (120, 40)).contains("show only rows that contain a text"));
    }

    #[test]
    fn a_guest_is_shown_with_its_ports_and_connections() {
        let guest =
            Guest { addresses: vec!["10.0.2.15/24".into()], tcp: vec!["8080:80".into()], ..Guest::default() };
        let net = Service { guest: Some(guest), sessions: 7, ..service("net", 0) };
        let samples = Samples::new(status(1, vec![net, service("web", 0)]));
        let mut view = View::default();
        for filter in ["", "8080"] {
            view.filter = filter.into();
            let shown = screen(&samples, &mut view, (120, 40));
            for words in
                ["net  guest 10.0.2.15/24", "net  TCP ports of this host to the guest: 8080:80", "7 of 9"]
            {
                assert!(shown.contains(words), "{words}:\n{shown}");
            }
        }
    }

    #[test]
    fn a_row_with_forwarded_ports_says_that_the_graphs_lack_their_traffic() {
        let guest = |tcp: &[&str]| Guest {
            tcp: tcp.iter().map(|range| (*range).into()).collect(),
            ..Guest::default()
        };
        for (tcp, expected) in [(&["8080:80"][..], 1), (&[], 0)] {
            let net = Service { guest: Some(guest(tcp)), ..service("net", 0) };
            let shown = screen(&Samples::new(status(1, vec![net])), &mut View::default(), (160, 40));
            assert_eq!(shown.matches("not in the ports, the graphs").count(), expected, "{shown}");
        }
    }

    #[test]
    fn the_busiest_session_is_seen_on_a_small_screen() {
        let shown = screen(&two(crowded), &mut View::default(), (80, 24));
        place(&shown, "192.168.100.102:60063");
    }

    #[test]
    fn any_size_and_any_scroll_position_is_valid() {
        let samples = Samples::new(status(1, Vec::new()));
        for size in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            let mut view = View { scrolled: u16::MAX, shows_help: true, ..View::default() };
            screen(&samples, &mut view, size);
            assert!(view.scrolled < 20, "{}", view.scrolled);
        }
    }

    #[test]
    fn colours_are_left_out_on_request() {
        let samples = Samples::new(status(1, Vec::new()));
        for has_colours in [false, true] {
            let mut terminal = Terminal::new(TestBackend::new(120, 30)).expect("it is memory");
            let mut view = View { has_colours, ..View::default() };
            terminal.draw(|frame| draw(frame, &samples, &mut view)).expect("it is memory");
            let cells = terminal.backend().buffer().content();
            let coloured = cells.iter().any(|cell| cell.fg != Color::Reset);
            assert_eq!(coloured, has_colours);
        }
    }

    #[test]
    fn values_have_three_digits_and_a_prefix() {
        for (value, expected) in [
            (0.0, "0 bit/s"),
            (999.0, "999 bit/s"),
            (999.6, "1.00 kbit/s"),
            (26.14e9, "26.1 Gbit/s"),
            (149.76e6, "150 Mbit/s"),
            (9.999e6, "10.0 Mbit/s"),
            (3e12, "3.00 Tbit/s"),
        ] {
            assert_eq!(bits(value), expected);
        }
        for (peak, scale) in [(0, 1), (1, 1), (3, 5), (26, 50), (1_000_001, 2_000_000)] {
            assert_eq!(scale_of(peak), scale);
        }
        assert_eq!(scale_of(u64::MAX), u64::MAX);
    }
}
