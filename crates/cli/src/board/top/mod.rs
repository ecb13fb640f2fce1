//! `kiban top`: a live view of a running board.
//!
//! Screen    at the top, a graph of the received and one of the sent bits, each with its scale; then CPU,
//!           memory and sessions by state; below, tables of ports, services and TCP sessions, the busiest
//!           first, and of circuits and shards.
//! Rates     all are differences between the same two samples, so that they agree.
//! Keys      `?` shows them, and what the mouse does. Terminals select text while Shift is held.
//! Limits    no rate is known in the first sample. A board reports at most
//!           [`CONNECTIONS_MAX`](kiban_service::status::CONNECTIONS_MAX) sessions of each shard.

mod samples;
mod screen;

use crate::board::control::{BoardName, query_status, status_text};
use clap::Args;
use crossterm::event::{
    self, DisableMouseCapture, EnableMouseCapture, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers,
    MouseButton, MouseEvent, MouseEventKind,
};
use crossterm::execute;
use kiban_os::clock::Clock;
use kiban_service::control::ControlClient;
use samples::Samples;
use screen::View;
use std::io::IsTerminal;
use std::panic;
use std::process::ExitCode;
use std::time::Duration;

/// The interval between updates; keys are handled at once.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of lines by which the wheel of a mouse scrolls.
const WHEEL_LINES: u16 = 3;
/// The number of lines by which a page key scrolls.
const PAGE_LINES: u16 = 10;

/// Watch a running board: rates, ports, services, TCP sessions and circuits, every second.
///
/// Press ? for the keys and q to quit. Without a terminal it prints the status once, like `kiban status`.
#[derive(Args)]
#[command(after_help = "Examples:\n  kiban top\n  kiban top lab")]
pub(crate) struct Top {
    #[command(flatten)]
    which: BoardName,
}

impl Top {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let mut caller = self.which.call()?;
        let first = query_status(&mut caller)?;
        if !std::io::stdout().is_terminal() {
            crate::output::print(&status_text(&first))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut terminal = ratatui::init();
        // A terminal without a mouse ignores this.
        let _ = execute!(std::io::stdout(), EnableMouseCapture);
        let release_mouse = || drop(execute!(std::io::stdout(), DisableMouseCapture));
        let restore = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            release_mouse();
            restore(panic);
        }));
        let watched = show(&mut terminal, &mut caller, Samples::new(first));
        release_mouse();
        ratatui::restore();
        watched.map(|()| ExitCode::SUCCESS)
    }
}

/// Updates the screen until the user quits or the board exits.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    caller: &mut ControlClient,
    mut samples: Samples,
) -> Result<(), String> {
    let terminal_error = |error: std::io::Error| format!("cannot use the terminal: {error}");
    let mut view = View { has_colours: crate::output::has_colours(&std::io::stdout()), ..View::default() };
    let clock = Clock::new();
    let mut sampled = clock.now();
    loop {
        terminal.draw(|frame| screen::draw(frame, &samples, &mut view)).map_err(terminal_error)?;
        let passed = clock.now().since(sampled);
        if event::poll(PAUSE.saturating_sub(passed)).map_err(terminal_error)? {
            match event::read().map_err(terminal_error)? {
                Event::Key(key) if key.kind == KeyEventKind::Press && on_key(&mut view, key) => return Ok(()),
                Event::Mouse(mouse) => on_mouse(&mut view, mouse),
                _ => {}
            }
        } else {
            sampled = clock.now();
            samples.add(query_status(caller)?);
        }
    }
}

/// Handles a key; returns whether the user quits.
fn on_key(view: &mut View, key: KeyEvent) -> bool {
    if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
        return true;
    }
    if view.is_typing {
        match key.code {
            KeyCode::Char(letter) => view.filter.push(letter),
            KeyCode::Backspace => {
                view.filter.pop();
            }
            KeyCode::Enter => view.is_typing = false,
            KeyCode::Esc => (view.is_typing, view.filter) = (false, String::new()),
            _ => {}
        }
        return false;
    }
    match key.code {
        KeyCode::Char('q') => return true,
        KeyCode::Esc if view.shows_help => view.shows_help = false,
        KeyCode::Esc if !view.filter.is_empty() => view.filter.clear(),
        KeyCode::Esc => return true,
        KeyCode::Char('?' | 'h') => view.shows_help = !view.shows_help,
        KeyCode::Char('/') => view.is_typing = true,
        KeyCode::Char('s') => view.by_name = !view.by_name,
        KeyCode::Up => view.scrolled = view.scrolled.saturating_sub(1),
        KeyCode::Down => view.scrolled = view.scrolled.saturating_add(1),
        KeyCode::PageUp => view.scrolled = view.scrolled.saturating_sub(PAGE_LINES),
        KeyCode::PageDown => view.scrolled = view.scrolled.saturating_add(PAGE_LINES),
        KeyCode::Home => view.scrolled = 0,
        _ => {}
    }
    false
}

/// Handles the mouse.
fn on_mouse(view: &mut View, mouse: MouseEvent) {
    match mouse.kind {
        MouseEventKind::ScrollUp => view.scrolled = view.scrolled.saturating_sub(WHEEL_LINES),
        MouseEventKind::ScrollDown => view.scrolled = view.scrolled.saturating_add(WHEEL_LINES),
        MouseEventKind::Down(MouseButton::Left) => view.click(mouse.column, mouse.row),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_filter_sort_scroll_and_quit() {
        let mut view = View::default();
        let mut press = |code| {
            let quits = on_key(&mut view, KeyEvent::new(code, KeyModifiers::NONE));
            (quits, view.filter.clone(), view.is_typing, view.by_name, view.scrolled, view.shows_help)
        };
        let state = |filter: &str, typing, by_name, scrolled, help| {
            (false, filter.to_owned(), typing, by_name, scrolled, help)
        };
        assert_eq!(press(KeyCode::Char('/')), state("", true, false, 0, false));
        // While a filter is typed, letters are not commands.
        assert_eq!(press(KeyCode::Char('q')), state("q", true, false, 0, false));
        press(KeyCode::Backspace);
        assert_eq!(press(KeyCode::Char('l')), state("l", true, false, 0, false));
        assert_eq!(press(KeyCode::Enter), state("l", false, false, 0, false));
        assert_eq!(press(KeyCode::Char('s')), state("l", false, true, 0, false));
        press(KeyCode::PageDown);
        assert_eq!(press(KeyCode::Up), state("l", false, true, 9, false));
        assert_eq!(press(KeyCode::Char('?')), state("l", false, true, 9, true));
        assert_eq!(press(KeyCode::Esc), state("l", false, true, 9, false));
        assert_eq!(press(KeyCode::Esc), state("", false, true, 9, false));
        assert!(press(KeyCode::Esc).0);
    }

    #[test]
    fn the_wheel_scrolls() {
        let mut view = View::default();
        let mut turn = |kind| {
            on_mouse(&mut view, MouseEvent { kind, column: 0, row: 0, modifiers: KeyModifiers::NONE });
            view.scrolled
        };
        assert_eq!((turn(MouseEventKind::ScrollDown), turn(MouseEventKind::ScrollUp)), (3, 0));
        assert_eq!(turn(MouseEventKind::ScrollUp), 0);
    }
}
