//! The PAD: states, assembly and disassembly, and the messages of the host.

use super::LINE_BYTES_MAX;
use super::command::Command;
use super::parameters::{COUNT, Parameters, Profile, reference};
use crate::wire::x25::diagnostic;
use crate::wire::x29::{Error, Fault, Indicated, Message};
use crate::x25::{Call, Cause, Indication};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::Instant;

const CR: u8 = 0x0d;
const LF: u8 = 0x0a;
const DLE: u8 = 0x10;
const XON: u8 = 0x11;
const XOFF: u8 = 0x13;

/// What the PAD does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Characters for the terminal.
    Terminal(Vec<u8>),
    /// A call.
    Call(Call),
    /// A unit for the host; with `true`, a message with the Q bit.
    Data(Vec<u8>, bool),
    /// An interrupt.
    Interrupt(Vec<u8>),
    /// A reset.
    Reset,
    /// A clear, after all units are acknowledged; a second one, at once.
    Clear,
}

/// The state of the PAD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// There is no call.
    Idle,
    /// The call is not yet answered.
    Calling,
    /// Data transfer; or, with `true`, a command line during a call.
    Connected(bool),
    /// A clear was requested.
    Clearing,
}

/// A PAD.
#[derive(Debug)]
pub struct Pad {
    parameters: Parameters,
    initial: Parameters,
    state: State,
    line: Vec<u8>,
    /// Whether the command line is too long, and will be answered as an error.
    is_long: bool,
    /// Characters not yet sent.
    assembly: Vec<u8>,
    packet_bytes: usize,
    idle_due: Instant,
    /// Characters in the terminal's current line, for line folding.
    column: u8,
    /// Whether the terminal has sent X-OFF.
    is_stopped: bool,
    /// Whether X-OFF was sent to the terminal (parameter 5).
    has_stopped: bool,
    /// Lines shown since the last page (parameter 22), and the host's characters that wait for the next one.
    lines: u8,
    next_page: Option<Vec<u8>>,
    /// A recall character besides that of parameter 1.
    escape: Option<u8>,
    /// Whether the user has sent a message to a PAD at the other end, which may answer with its parameters.
    asks_remote: bool,
    output: VecDeque<Output>,
}

impl Pad {
    /// Creates a PAD with a profile's parameters.
    pub fn new(profile: Profile) -> Pad {
        let parameters = Parameters::new(profile);
        Pad {
            parameters,
            initial: parameters,
            state: State::Idle,
            line: Vec::new(),
            is_long: false,
            assembly: Vec::new(),
            packet_bytes: 128,
            idle_due: Instant::NEVER,
            column: 0,
            is_stopped: false,
            has_stopped: false,
            lines: 0,
            next_page: None,
            escape: None,
            asks_remote: false,
            output: VecDeque::new(),
        }
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Returns whether there is no call.
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Returns whether the terminal accepts characters: it has not sent X-OFF, or flow control is off, and
    /// its page is not full.
    pub fn takes_data(&self) -> bool {
        let is_flowing = !self.is_stopped || self.parameters.value(reference::FLOW_CONTROL) == 0;
        is_flowing && self.next_page.is_none()
    }

    /// Tells whether characters of the terminal are accepted; otherwise it is sent X-OFF, if parameter 5 says
    /// so.
    pub fn set_room(&mut self, has_room: bool) {
        let applies = match self.state {
            State::Connected(false) => self.parameters.value(reference::DEVICE_CONTROL) != 0,
            _ => self.parameters.value(reference::DEVICE_CONTROL) == 2,
        };
        let stops = applies && !has_room;
        if core::mem::replace(&mut self.has_stopped, stops) != stops {
            self.terminal(&[if stops { XOFF } else { XON }]);
        }
    }

    /// Sets a recall character besides that of parameter 1, which the host can disable.
    pub fn set_escape(&mut self, escape: u8) {
        self.escape = Some(escape);
    }

    /// Sets the packet size, which limits units.
    pub fn set_packet_bytes(&mut self, bytes: usize) {
        self.packet_bytes = bytes.max(1);
    }

    /// Returns what to do next.
    pub fn poll(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// Makes a call, as the selection command does.
    pub fn call(&mut self, call: Call) {
        if self.state == State::Idle {
            self.state = State::Calling;
            self.output.push_back(Output::Call(call));
        } else {
            self.signal("ERR");
        }
    }

    /// Returns when [`Pad::settle`] must be called.
    pub fn deadline(&self) -> Instant {
        self.idle_due
    }

    /// Forwards characters after a pause (parameter 4).
    pub fn settle(&mut self, now: Instant) {
        if self.idle_due <= now {
            self.forward();
        }
    }

    /// Handles the end of the terminal's input: everything assembled is sent, and the call is cleared.
    pub fn on_end(&mut self) {
        self.forward();
        self.clear();
    }

    /// Handles characters from the terminal.
    pub fn on_terminal(&mut self, octets: &[u8], now: Instant) {
        for octet in octets {
            let octet = *octet;
            let flow_control = self.parameters.value(reference::FLOW_CONTROL) == 1;
            match octet {
                XOFF if flow_control => self.is_stopped = true,
                XON if self.next_page.is_some() => {
                    self.is_stopped = false;
                    self.turn_page();
                }
                XON if flow_control => self.is_stopped = false,
                _ => match self.state {
                    State::Connected(false) => self.on_data_octet(octet, now),
                    State::Connected(true)
                        if self.is_recall(octet) && self.line.is_empty() && !self.is_long =>
                    {
                        // X.28 §4.9.1: a second recall character is data.
                        self.state = State::Connected(false);
                        self.assemble(octet, now);
                    }
                    State::Idle | State::Connected(true) | State::Calling | State::Clearing => {
                        self.on_command_octet(octet);
                    }
                },
            }
        }
    }

    /// Handles a break (parameter 7).
    pub fn on_break(&mut self) {
        let State::Connected(_) = self.state else { return };
        let actions = self.parameters.value(reference::BREAK);
        if actions & 1 != 0 {
            self.output.push_back(Output::Interrupt([0].into()));
        }
        if actions & 2 != 0 {
            self.assembly.clear();
            self.output.push_back(Output::Reset);
        }
        let discards = actions & 16 != 0;
        if actions & 4 != 0 {
            // A break that discards output says so, because the host must set parameter 8 back.
            self.message(&Message::Break(discards));
        }
        if discards {
            // The value is one that the parameter allows.
            let _ = self.parameters.set(reference::DISCARD, 1);
        }
        if actions & 8 != 0 {
            self.escape();
        }
    }

    fn is_recall(&self, octet: u8) -> bool {
        if self.escape == Some(octet) {
            return true;
        }
        match self.parameters.value(reference::RECALL) {
            0 => false,
            1 => octet == DLE,
            character => octet == character,
        }
    }

    fn escape(&mut self) {
        self.forward();
        self.state = State::Connected(true);
        self.line.clear();
        self.is_long = false;
        self.prompt();
    }

    fn on_data_octet(&mut self, octet: u8, now: Instant) {
        if self.is_recall(octet) {
            return self.escape();
        }
        let edits = self.parameters.value(reference::EDITING) == 1;
        let is = |of: u8| edits && self.parameters.value(of) == octet;
        if is(reference::DELETE) {
            if self.assembly.pop().is_some() {
                self.show_deletion(1);
            }
        } else if is(reference::DELETE_LINE) {
            let count = self.assembly.len();
            self.assembly.clear();
            self.show_deletion(count);
        } else if is(reference::DISPLAY_LINE) {
            let shown = [&[CR, LF][..], &self.assembly].concat();
            self.terminal(&shown);
        } else {
            self.assemble(octet, now);
        }
    }

    /// Shows a deletion on the terminal (parameter 19).
    fn show_deletion(&mut self, count: usize) {
        if self.parameters.value(reference::ECHO) == 0 {
            return;
        }
        match self.parameters.value(reference::EDITING_SIGNALS) {
            0 => {}
            1 if count == 1 => self.terminal(b"\\"),
            1 => self.terminal(b"XXX\r\n"),
            2 | 8 => {
                for _ in 0..count {
                    self.terminal(b"\x08 \x08");
                }
            }
            character => self.terminal(&[character]),
        }
    }

    /// Adds a character to the assembly, echoes it, and forwards the assembly if it is time.
    fn assemble(&mut self, octet: u8, now: Instant) {
        let insertion = self.parameters.value(reference::LF_INSERTION);
        if self.parameters.echoes(octet) {
            self.terminal(&[octet]);
            if octet == CR && insertion & 4 != 0 {
                self.terminal(&[LF]);
            }
        }
        self.assembly.push(octet);
        if octet == CR && insertion & 2 != 0 {
            self.assembly.push(LF);
        }
        let edits = self.parameters.value(reference::EDITING) == 1;
        if self.parameters.forwards(octet) || self.assembly.len() >= self.packet_bytes {
            self.forward();
        } else {
            // The idle timer does not run while a line is edited (X.3 §3.4).
            self.idle_due = match self.parameters.value(reference::IDLE_TIMER) {
                0 => Instant::NEVER,
                _ if edits => Instant::NEVER,
                ticks => now + Duration::from_millis(50) * u32::from(ticks),
            };
        }
    }

    /// Sends what is assembled.
    fn forward(&mut self) {
        self.idle_due = Instant::NEVER;
        // The user has read the page, and writes.
        self.lines = 0;
        if !self.assembly.is_empty() {
            self.output.push_back(Output::Data(core::mem::take(&mut self.assembly), false));
        }
    }

    fn message(&mut self, message: &Message) {
        self.output.push_back(Output::Data(message.write(), true));
    }

    fn on_command_octet(&mut self, octet: u8) {
        match octet {
            CR | b'+' => {
                self.terminal(b"\r\n");
                let line = core::mem::take(&mut self.line);
                let is_long = core::mem::take(&mut self.is_long);
                let line = String::from_utf8_lossy(&line).into_owned();
                if is_long {
                    self.signal("ERR");
                } else if !line.trim().is_empty() {
                    self.on_command(&line);
                }
                if let State::Connected(true) = self.state {
                    // X.28 §3.2.2: after a command, the PAD returns to data transfer.
                    self.state = State::Connected(false);
                } else if self.state == State::Idle {
                    self.prompt();
                }
            }
            0x08 | 0x7f => {
                let is_deleted = self.line.pop().is_some();
                if is_deleted && self.parameters.value(reference::ECHO) == 1 {
                    self.terminal(b"\x08 \x08");
                }
            }
            // Cancels the line.
            0x18 => {
                self.line.clear();
                self.is_long = false;
                self.terminal(b"XXX\r\n");
            }
            0x20..=0x7e => {
                if self.line.len() < LINE_BYTES_MAX {
                    self.line.push(octet);
                    if self.parameters.value(reference::ECHO) == 1 {
                        self.terminal(&[octet]);
                    }
                } else {
                    self.is_long = true;
                }
            }
            _ => {}
        }
    }

    fn on_command(&mut self, line: &str) {
        let is_connected = matches!(self.state, State::Connected(_));
        match Command::parse(line) {
            Ok(Command::Select(call)) => self.call(call),
            Ok(Command::Clear) if self.state == State::Idle => self.signal("ERR"),
            Ok(Command::Clear) if self.state == State::Clearing => self.output.push_back(Output::Clear),
            Ok(Command::Clear) => self.clear(),
            Ok(Command::Status) => {
                self.signal(if self.state == State::Idle { "FREE" } else { "ENGAGED" });
            }
            Ok(Command::Reset) if is_connected => self.output.push_back(Output::Reset),
            Ok(Command::Interrupt) if is_connected => {
                self.output.push_back(Output::Interrupt([0].into()));
            }
            Ok(Command::Break) if is_connected => self.on_break(),
            Ok(Command::Read(references)) => self.show(&references),
            Ok(Command::Remote(message)) if is_connected => {
                self.asks_remote = true;
                self.message(&message);
            }
            Ok(Command::Set(pairs)) => self.on_set_command(&pairs, false),
            Ok(Command::SetAndRead(pairs)) => self.on_set_command(&pairs, true),
            Ok(Command::Profile(profile)) => self.parameters = Parameters::new(profile),
            Ok(Command::Reset | Command::Interrupt | Command::Break | Command::Remote(_)) | Err(_) => {
                self.signal("ERR");
            }
        }
    }

    fn on_set_command(&mut self, pairs: &[(u8, u8)], shows: bool) {
        let results: Vec<(u8, Result<(), Fault>)> =
            pairs.iter().map(|(of, value)| (*of, self.parameters.set(*of, *value))).collect();
        if self.parameters.value(reference::PAGE_WAIT) == 0 {
            self.turn_page();
        }
        if shows || results.iter().any(|(_, result)| result.is_err()) {
            let value = |(of, result): (u8, Result<(), Fault>)| (of, result.and(self.parameters.get(of)));
            let values: Vec<Indicated> = results.into_iter().map(value).collect();
            self.signal(&format!("PAR{}", listed(&values)));
        }
    }

    fn show(&mut self, references: &[u8]) {
        let all: Vec<u8> = (1..=COUNT as u8).collect();
        let references = if references.is_empty() { &all } else { references };
        let values: Vec<Indicated> = references.iter().map(|of| (*of, self.parameters.get(*of))).collect();
        self.signal(&format!("PAR{}", listed(&values)));
    }

    fn clear(&mut self) {
        if matches!(self.state, State::Connected(_) | State::Calling) {
            self.state = State::Clearing;
            self.output.push_back(Output::Clear);
        }
    }

    /// Shows a service signal (parameter 6).
    fn signal(&mut self, text: &str) {
        if self.parameters.value(reference::SERVICE_SIGNALS) != 0 {
            let line = format!("\r\n{text}\r\n");
            self.terminal(line.as_bytes());
        }
    }

    /// Shows the prompt, if parameter 6 asks for it.
    fn prompt(&mut self) {
        if self.parameters.value(reference::SERVICE_SIGNALS) == 5 {
            self.terminal(b"*");
        }
    }

    fn terminal(&mut self, octets: &[u8]) {
        if let Some(Output::Terminal(last)) = self.output.back_mut() {
            last.extend_from_slice(octets);
        } else {
            self.output.push_back(Output::Terminal(octets.into()));
        }
    }

    /// Handles an indication of the circuit.
    pub fn on_indication(&mut self, indication: Indication) {
        match indication {
            Indication::Accepted { sizes, .. } => {
                self.state = State::Connected(false);
                self.line.clear();
                self.set_packet_bytes(usize::from(sizes.packet_bytes_out));
                self.signal("COM");
            }
            Indication::Cleared { by_peer, cause, .. } => {
                let text = clear_signal(by_peer, cause);
                self.ended(&text);
            }
            Indication::ClearConfirmed { .. } => self.ended("CLR CONF"),
            Indication::Down if self.state != State::Idle => self.ended("CLR NC"),
            Indication::Reset { by_peer, cause, .. } => {
                self.assembly.clear();
                let Cause { cause, diagnostic } = cause;
                let by = if by_peer && (cause & 0x7f) == 0 { "DTE" } else { "ERR" };
                self.signal(&format!("RESET {by} C:{cause} D:{}", diagnostic.unwrap_or(0)));
            }
            Indication::Data { data, qualifier: true, .. } => self.on_message(&data.to_vec()),
            Indication::Data { data, .. } => self.disassemble(&data.to_vec()),
            _ => {}
        }
    }

    fn ended(&mut self, signal: &str) {
        // What has arrived is shown, although nobody has turned the page.
        let _ = self.parameters.set(reference::PAGE_WAIT, 0);
        self.turn_page();
        self.state = State::Idle;
        self.line.clear();
        self.is_long = false;
        self.assembly.clear();
        self.idle_due = Instant::NEVER;
        self.parameters = self.initial;
        self.is_stopped = false;
        self.asks_remote = false;
        self.signal(signal);
        self.prompt();
    }

    /// Writes the host's characters to the terminal (parameters 8, 9, 10, 13, 14 and 22).
    fn disassemble(&mut self, octets: &[u8]) {
        if self.parameters.value(reference::DISCARD) == 1 {
            return;
        }
        if let Some(rest) = &mut self.next_page {
            return rest.extend_from_slice(octets);
        }
        let insertion = self.parameters.value(reference::LF_INSERTION);
        let padding = self.parameters.value(reference::CR_PADDING);
        let width = self.parameters.value(reference::FOLDING);
        let page = self.parameters.value(reference::PAGE_WAIT);
        let mut shown = Vec::with_capacity(octets.len());
        for (at, octet) in octets.iter().enumerate() {
            if (0x20..=0x7e).contains(octet) {
                if width != 0 && self.column >= width {
                    shown.push(CR);
                    self.feed_line(&mut shown);
                    self.column = 0;
                }
                self.column = self.column.saturating_add(1);
            }
            match *octet {
                LF => self.feed_line(&mut shown),
                octet => shown.push(octet),
            }
            if *octet == CR {
                self.column = 0;
                shown.resize(shown.len() + usize::from(padding), 0);
                if insertion & 1 != 0 {
                    self.feed_line(&mut shown);
                }
            }
            if page != 0 && self.lines >= page {
                self.next_page = Some(octets[at + 1..].into());
                break;
            }
        }
        self.terminal(&shown);
        if self.next_page.is_some() {
            self.signal("PAGE");
        }
    }

    /// Adds a line feed and its padding.
    fn feed_line(&mut self, shown: &mut Vec<u8>) {
        shown.push(LF);
        shown.resize(shown.len() + usize::from(self.parameters.value(reference::LF_PADDING)), 0);
        if self.parameters.value(reference::PAGE_WAIT) != 0 {
            self.lines = self.lines.saturating_add(1);
        }
    }

    /// Shows the next page, if characters wait for it (parameter 22).
    pub fn turn_page(&mut self) {
        self.lines = 0;
        if let Some(rest) = self.next_page.take() {
            self.disassemble(&rest);
        }
    }

    /// Handles a message of the host.
    fn on_message(&mut self, bytes: &[u8]) {
        match Message::read(bytes) {
            Ok(Message::Set(pairs)) => {
                let faults = self.set(&pairs);
                if !faults.is_empty() {
                    // X.29 §3.3.2: only the parameters that could not be set are indicated.
                    let faults = faults.into_iter().map(|(of, fault)| (of, Err(fault))).collect();
                    self.message(&Message::Indication(faults));
                }
            }
            Ok(Message::SetAndRead(pairs)) => {
                let faults = self.set(&pairs);
                let references = pairs.iter().map(|(of, _)| *of);
                let references: Vec<u8> =
                    if pairs.is_empty() { (1..=COUNT as u8).collect() } else { references.collect() };
                let of = |of: u8| {
                    let fault = faults.iter().find(|(faulty, _)| *faulty == of);
                    (of, fault.map_or_else(|| self.parameters.get(of), |(_, fault)| Err(*fault)))
                };
                let indicated = references.into_iter().map(of).collect();
                self.message(&Message::Indication(indicated));
            }
            Ok(Message::Read(references)) => {
                let references = if references.is_empty() { (1..=COUNT as u8).collect() } else { references };
                let indicated = references.into_iter().map(|of| (of, self.parameters.get(of))).collect();
                self.message(&Message::Indication(indicated));
            }
            Ok(Message::InvitationToClear) => {
                self.forward();
                self.clear();
            }
            Ok(Message::Indication(values)) if self.asks_remote => {
                self.signal(&format!("RPAR{}", listed(&values)));
            }
            Ok(Message::Indication(_)) => self.message(&Message::Error(Error::Unsolicited(0))),
            Ok(Message::Reselection) => {
                let code = bytes.first().copied().unwrap_or(0);
                self.message(&Message::Error(Error::Reselection(code)));
            }
            // A terminal that is a program has no break; an error message is not answered.
            Ok(Message::Break(_) | Message::Error(_)) => {}
            Err(error) => self.message(&Message::Error(error)),
        }
    }

    /// Sets parameters; returns those that could not be set. Without any, all get their initial values.
    fn set(&mut self, pairs: &[(u8, u8)]) -> Vec<(u8, Fault)> {
        if pairs.is_empty() {
            self.parameters = self.initial;
        }
        pairs.iter().filter_map(|(of, value)| Some((*of, self.parameters.set(*of, *value).err()?))).collect()
    }
}

/// Returns parameters as service signals show them (X.28 §3.5.13).
fn listed(values: &[Indicated]) -> String {
    let text = values.iter().map(|(of, value)| match value {
        Ok(value) => format!("{of}:{value}"),
        Err(_) => format!("{of}:INV"),
    });
    text.collect::<Vec<String>>().join(",")
}

/// Returns the clear service signal (X.28 §3.5.6).
fn clear_signal(by_peer: bool, cause: Cause) -> String {
    let Cause { cause, diagnostic } = cause;
    let code = diagnostic.unwrap_or(0);
    let word = match cause & 0x7f {
        0x00 if by_peer => "DTE",
        _ if code == diagnostic::CALL_TIME && !by_peer => "NC",
        0x01 => "OCC",
        0x03 => "INV",
        0x05 => "NC",
        0x09 => "DER",
        0x0b => "NA",
        0x0d => "NP",
        0x11 => "RPE",
        0x13 => "ERR",
        0x15 => "ROO",
        0x19 => "NRC",
        0x21 => "ID",
        0x29 => "NFS",
        _ => "ERR",
    };
    format!("CLR {word} C:{cause} D:{code}")
}
