//! Who works: the tasks of paper \[5\], and whoever wants to know how long each of them does.
//!
//! Goal      time per layer is measured, or spent by a modelled processor, by one hook in the wiring.
//! How       the wiring says which task it turns to. A meter of the real world reads a clock at each turn; one of the
//!           simulator charges what that task costs on another machine; `()` does nothing, and costs nothing.

/// A task of the board: what the paper's operating system scheduled, and our wiring calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Task {
    /// HIF: the host interface, where files are read and written.
    Host,
    /// FTAM: the file service's machine and its user.
    Ftam,
    /// ACSE and PL: association control and presentation.
    Presentation,
    /// SL: session.
    Session,
    /// TL: transport.
    Transport,
    /// LIF: the interface to the lower module, or the internal loopback.
    Lower,
}

impl Task {
    /// All, from the host down.
    pub const ALL: [Task; 6] =
        [Task::Host, Task::Ftam, Task::Presentation, Task::Session, Task::Transport, Task::Lower];

    /// The paper's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Task::Host => "HIF",
            Task::Ftam => "FTAM",
            Task::Presentation => "ACSE+PL",
            Task::Session => "SL",
            Task::Transport => "TL",
            Task::Lower => "LIF",
        }
    }
}

/// Whoever is told which task works.
pub trait Meter {
    /// The wiring turns to `task`, which is handed one unit of so many bytes.
    fn turn_to(&mut self, task: Task, bytes: usize);
    /// The wiring has nothing to do.
    fn rest(&mut self);
}

impl Meter for () {
    #[inline]
    fn turn_to(&mut self, _task: Task, _bytes: usize) {}
    #[inline]
    fn rest(&mut self) {}
}
