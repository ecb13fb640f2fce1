//! The screen of `kiban top`.

use super::samples::Samples;
use crate::board::control::{guest_lines, link_cell};
use kiban_lab::Table;
use kiban_service::status::{Connection, Port, Service, Use};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline};

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
    /// The row that is highlighted, by its first two words, which name it.
    pub(super) selected: Option<String>,
    /// Where the tables were drawn, and their lines.
    pub(super) area: Rect,
    pub(super) lines: Vec<String>,
    pub(super) shows_help: bool,
    pub(super) has_colours: bool,
}

/// Colours that differ in lightness, too, for colour-blind users.
const RECEIVED: Color = Color::Cyan;
const SENT: Color = Color::Yellow;
const GRAPH_LINES: u16 = 6;

const HELP: [&str; 10] = [
    "?, h        this help",
    "/           show only rows that contain a text; Enter ends it, Esc removes it",
    "s           sort by name, or by rate",
    "Up, Down    scroll; PageUp, PageDown, Home too",
    "q, Esc      quit",
    "mouse       the wheel scrolls; click on a row to highlight it, or on the head",
    "            of a column to sort by it: by name on the first, by rate on others",
    "",
    "Graphs have the newest sample on the right, and one column for each second.",
    "Memory is shown in red from 90 % on.",
];

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
    let [above, middle, below, keys] = Layout::vertical([
        Constraint::Length(GRAPH_LINES),
        Constraint::Length(4),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(above);
    let colour = |colour: Color| if view.has_colours { Style::new().fg(colour) } else { Style::new() };
    for (area, way, name, style) in
        [(left, 0, "received", colour(RECEIVED)), (right, 1, "sent", colour(SENT))]
    {
        graph(frame, area, samples, way, name, style);
    }
    frame.render_widget(Paragraph::new(summary(samples, view.has_colours)), middle);
    let lines = tables(samples, view);
    // The last line stays visible.
    view.scrolled = view.scrolled.min(u16::try_from(lines.len().saturating_sub(1)).unwrap_or(u16::MAX));
    (view.area, view.lines) = (below, lines.iter().map(ToString::to_string).collect());
    frame.render_widget(Paragraph::new(lines).scroll((view.scrolled, 0)), below);
    let order = if view.by_name { "name" } else { "rate" };
    let typed = match (view.is_typing, view.filter.as_str()) {
        (true, text) => format!("filter: {text}_"),
        (false, "") => "/ filter".to_owned(),
        (false, text) => format!("filter: {text} (Esc removes it)"),
    };
    frame.render_widget(Paragraph::new(format!("? help  {typed}  s sorted by {order}  q quit")), keys);
    if view.shows_help {
        let width = HELP.iter().map(|line| line.len()).max().unwrap_or(0) as u16 + 2;
        let area = frame.area();
        let help = Rect::new(
            area.width.saturating_sub(width) / 2,
            area.height.saturating_sub(HELP.len() as u16 + 2) / 2,
            width.min(area.width),
            (HELP.len() as u16 + 2).min(area.height),
        );
        frame.render_widget(Clear, help);
        frame.render_widget(
            Paragraph::new(HELP.join("\n")).block(Block::bordered().title(" kiban top ")),
            help,
        );
    }
}

/// Draws the graph of a direction. Its title has the current rate, and the rate of its upper edge.
fn graph(frame: &mut Frame<'_>, area: Rect, samples: &Samples, way: usize, name: &str, style: Style) {
    let history = &samples.bits[way];
    let block = Block::bordered();
    let width = usize::from(block.inner(area).width);
    let shown: Vec<u64> = history.iter().take(width).rev().copied().collect();
    let scale = scale_of(shown.iter().copied().max().unwrap_or(0));
    let now = bits(history.front().copied().unwrap_or(0) as f64);
    let title = format!(" {}: {name} {now}, scale 0 to {} ", samples.status.name, bits(scale as f64));
    // The graph is right-aligned: the newest sample is in the last column.
    let empty = width.saturating_sub(shown.len());
    let columns: Vec<u64> = std::iter::repeat_n(0, empty).chain(shown).collect();
    let bars = Sparkline::default().data(&columns).max(scale).style(style);
    frame.render_widget(bars.block(block.title(title)), area);
}

/// Returns the lines about CPU, memory and sessions.
fn summary(samples: &Samples, has_colours: bool) -> Vec<Line<'static>> {
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
    let by_state: Vec<String> =
        status.sessions.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let all: u64 = status.sessions.values().sum();
    vec![
        Line::from(format!("{}, up {uptime}, process {}, CPU {cores} of a core", status.state, status.pid)),
        Line::from(vec![
            Span::raw("memory: "),
            part("transmit", &memory.transmit_bytes),
            Span::raw(", "),
            part("receive", &memory.receive_bytes),
            Span::raw(format!(", PDUs {} of {}", memory.pdus.used, memory.pdus.capacity)),
        ]),
        Line::from(match &by_state[..] {
            [] => "sessions: none".to_owned(),
            states => format!("sessions: {all} ({})", states.join(", ")),
        }),
    ]
}

/// Returns the lines of all tables.
fn tables(samples: &Samples, view: &View) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for table in
        [ports(samples, view), services(samples, view), connections(samples, view), circuits(samples, view)]
    {
        if table.is_empty() {
            continue;
        }
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        for (number, line) in table.to_string().lines().enumerate() {
            // The title and the heads.
            let style = if number < 2 {
                Style::new().add_modifier(Modifier::BOLD)
            } else if view.selected.is_some() && name_of(line) == view.selected {
                Style::new().add_modifier(Modifier::REVERSED)
            } else {
                Style::new()
            };
            lines.push(Line::from(Span::styled(line.to_owned(), style)));
        }
    }
    lines
}

/// Returns the first two words of a row, which name it; `None` for other lines.
fn name_of(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    Some(format!("{} {}", words.next()?, words.next()?)).filter(|_| !line.starts_with("--"))
}

impl View {
    /// Handles a click on a cell of the screen: on a row, which is highlighted, or on the head of a column.
    pub(super) fn click(&mut self, column: u16, row: u16) {
        if !self.area.contains(Position::new(column, row)) {
            return;
        }
        let at = usize::from(row - self.area.y + self.scrolled);
        let Some(line) = self.lines.get(at) else { return };
        let is_rule = |at: usize| self.lines.get(at).is_some_and(|line| line.starts_with("--"));
        if is_rule(at + 1) {
            let first = self.lines[at + 1].find(' ').unwrap_or(usize::MAX);
            self.by_name = usize::from(column - self.area.x) <= first;
        } else {
            // A second click ends the highlight.
            let name = name_of(line);
            self.selected = name.filter(|name| self.selected.as_ref() != Some(name));
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
fn rate_cells(rates: Option<[f64; 2]>) -> [String; 2] {
    rates.map_or(["-".into(), "-".into()], |rates| rates.map(bits))
}

/// Returns whether a row passes the filter.
fn passes(cells: &[String], view: &View) -> bool {
    let filter = view.filter.to_lowercase();
    cells.iter().any(|cell| cell.to_lowercase().contains(&filter))
}

fn ports(samples: &Samples, view: &View) -> Table {
    let mut table = Table::new("ports")
        .text_column("port")
        .text_column("link")
        .text_column("state")
        .number_column("received")
        .number_column("sent")
        .number_column("packets in")
        .number_column("out")
        .number_column("queued")
        .number_column("lost");
    let rate = |port: &Port| port.rates.bits_in + port.rates.bits_out;
    for port in ordered(&samples.status.ports, view, |port| &port.name, rate) {
        let link = link_cell(&mut table, &port.name, &port.link);
        let row = [
            port.name.clone(),
            link,
            port.state.clone(),
            bits(port.rates.bits_in),
            bits(port.rates.bits_out),
            scaled(port.rates.units_in, "/s"),
            scaled(port.rates.units_out, "/s"),
            port.waiting.to_string(),
            port.lost.values().sum::<u64>().to_string(),
        ];
        if passes(&row, view) {
            table.row(row);
        }
    }
    table
}

fn services(samples: &Samples, view: &View) -> Table {
    let mut table = Table::new("services")
        .text_column("service")
        .text_column("kind")
        .text_column("listens on")
        .text_column("state")
        .number_column("sessions")
        .number_column("received")
        .number_column("sent")
        .number_column("refused");
    let rates = |service: &Service| samples.service_bits(&service.name);
    let sum = |service: &Service| sum(rates(service));
    for service in ordered(&samples.status.services, view, |service| &service.name, sum) {
        let [received, sent] = rate_cells(rates(service));
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
        if passes(&row, view) || passes(&guest, view) {
            table.row(row);
            guest.iter().for_each(|line| table.remark(format!("{}  {line}", service.name)));
        }
    }
    table
}

fn connections(samples: &Samples, view: &View) -> Table {
    let mut table = Table::new("TCP sessions")
        .text_column("local")
        .text_column("remote")
        .text_column("state")
        .number_column("received")
        .number_column("sent")
        .number_column("RTT")
        .number_column("cwnd")
        .number_column("retransmitted");
    let rates = |one: &Connection| samples.connection_bits(one);
    let sum = |one: &Connection| sum(rates(one));
    for one in ordered(&samples.status.connections, view, |one| (&one.local, &one.remote), sum) {
        let [received, sent] = rate_cells(rates(one));
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
        if passes(&row, view) {
            table.row(row);
        }
    }
    table
}

fn circuits(samples: &Samples, view: &View) -> Table {
    let mut table = Table::new("circuits")
        .text_column("port")
        .text_column("vc")
        .text_column("peer")
        .text_column("InATMARP");
    for circuit in &samples.status.circuits {
        let peer = circuit.peer.clone().unwrap_or_else(|| "?".into());
        let row = [circuit.port.clone(), circuit.vc.clone(), peer, circuit.state.clone()];
        if passes(&row, view) {
            table.row(row);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_service::status::{Guest, Memory, Rates, Status};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    fn port(name: &str, bits_in: f64, bits_out: f64) -> Port {
        let rates = Rates { bits_in, bits_out, units_in: 12_345.0, ..Rates::default() };
        Port { name: name.into(), state: "up".into(), rates, ..Port::default() }
    }

    fn service(name: &str, bytes_in: u64) -> Service {
        let counters = [("bytes_in".to_owned(), bytes_in), ("bytes_out".to_owned(), 0)].into();
        Service { name: name.into(), sessions_max: 9, counters, ..Service::default() }
    }

    fn status(services: Vec<Service>) -> Status {
        let full = Use { capacity: 64 << 20, used: 60 << 20 };
        Status {
            name: "lab".into(),
            ports: vec![port("east", 3e6, 4.5e6), port("west", 26.1e9, 950e3)],
            services,
            memory: Memory { receive_bytes: full, ..Memory::default() },
            sessions: [("ESTABLISHED".to_owned(), 3)].into(),
            ..Status::default()
        }
    }

    fn screen(samples: &Samples, view: &mut View, (width, height): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is memory");
        terminal.draw(|frame| draw(frame, samples, view)).expect("it is memory");
        terminal.backend().to_string()
    }

    #[test]
    fn the_screen_shows_rates_with_units_and_the_busiest_first() {
        let mut samples = Samples::new(status(vec![service("idle", 10), service("busy", 10)]));
        let two = Duration::from_secs(2);
        samples.add(status(vec![service("idle", 10), service("busy", 2_500_010)]), two);
        let mut view = View::default();
        let shown = screen(&samples, &mut view, (120, 40));
        for words in [
            "lab: received 26.1 Gbit/s, scale 0 to 50.0 Gbit/s",
            "sent 5.45 Mbit/s, scale 0 to 10.0 Mbit/s",
            "12.3 k/s",
            "10.0 Mbit/s",
            "60.00 MiB of 64.00 MiB (94 %)",
            "sessions: 3 (3 ESTABLISHED)",
        ] {
            assert!(shown.contains(words), "{words}:\n{shown}");
        }
        let place = |word: &str| shown.find(word).unwrap_or_else(|| panic!("{word}:\n{shown}"));
        assert!(place("west ") < place("east ") && place("busy ") < place("idle "), "{shown}");
        view.by_name = true;
        let shown = screen(&samples, &mut view, (120, 40));
        assert!(shown.find("east ") < shown.find("west "), "{shown}");
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
        let of = |bytes| Status {
            connections: vec![session("10.0.0.2:9", 0), session("10.0.0.3:9", bytes)],
            ..status(Vec::new())
        };
        let mut samples = Samples::new(of(0));
        samples.add(of(1_250_000), Duration::from_secs(1));
        let mut view = View::default();
        let shown = screen(&samples, &mut view, (120, 40));
        let place = |word: &str| shown.find(word).unwrap_or_else(|| panic!("{word}:\n{shown}"));
        assert!(place("10.0.0.3:9") < place("10.0.0.2:9"), "{shown}");
        for words in ["10.0 Mbit/s", "1.23 ms", "65.0 kB", "2.90 kB"] {
            assert!(shown.contains(words), "{words}:\n{shown}");
        }
    }

    #[test]
    fn clicks_sort_by_a_column_and_highlight_a_row() {
        let samples = Samples::new(Status {
            connections: vec![session("10.0.0.2:9", 0)],
            ..status(vec![service("web", 10)])
        });
        let mut view = View::default();
        screen(&samples, &mut view, (120, 40));
        let row_of = |view: &View, words: &str| {
            let at = view.lines.iter().position(|line| line.contains(words)).expect(words);
            view.area.y + at as u16
        };
        let heads = row_of(&view, "listens on");
        view.click(view.area.x + 1, heads);
        assert!(view.by_name);
        view.click(view.area.x + 40, heads);
        assert!(!view.by_name);
        let row = row_of(&view, "10.0.0.2:9");
        view.click(view.area.x + 3, row);
        assert_eq!(view.selected.as_deref(), Some("10.0.0.1:80 10.0.0.2:9"));
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
        let samples = Samples::new(status(vec![service("web", 10)]));
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
        let samples = Samples::new(status(vec![net, service("web", 0)]));
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
    fn any_size_and_any_scroll_position_is_valid() {
        let samples = Samples::new(status(Vec::new()));
        for size in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            let mut view = View { scrolled: u16::MAX, shows_help: true, ..View::default() };
            screen(&samples, &mut view, size);
            assert!(view.scrolled < 20, "{}", view.scrolled);
        }
    }

    #[test]
    fn colours_are_left_out_on_request() {
        let samples = Samples::new(status(Vec::new()));
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
