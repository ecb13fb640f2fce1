//! Metering: the tasks of paper \[5\], and the hook that learns which of them works.
//!
//! Purpose    time per layer is measured, or spent by a modelled processor, with one hook in the wiring.
//! Operation  the wiring names the task that it turns to. In real time, a meter reads a clock at each turn;
//!            in the simulator, it charges what that task costs on another machine; `()` does nothing, and
//!            costs nothing.

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
    /// All tasks, from the host down.
    pub const ALL: [Task; 6] =
        [Task::Host, Task::Ftam, Task::Presentation, Task::Session, Task::Transport, Task::Lower];

    /// Returns the paper's name of the task.
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

/// Receives which task works.
pub trait Meter {
    /// Reports that the wiring turns to `task`, which is given one unit of this many bytes.
    fn turn_to(&mut self, task: Task, bytes: usize);
    /// Reports that the wiring has nothing to do.
    fn rest(&mut self);
}

impl Meter for () {
    #[inline]
    fn turn_to(&mut self, _task: Task, _bytes: usize) {}
    #[inline]
    fn rest(&mut self) {}
}
