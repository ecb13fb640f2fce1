//! Metering: the tasks of paper \[5\] (docs/reproduce-osi-board.md), and a hook that reports which task is
//! running.
//!
//! Purpose    one hook in the wiring makes it possible to measure the time spent in each layer, or to charge
//!            it to a modelled processor.
//! Operation  the wiring reports each task that it switches to. In real time, a meter reads a clock at each
//!            switch. In the simulator, a meter charges the task's cost to the modelled machine. The meter
//!            `()` does nothing and costs nothing.

/// A task of the board: an operating system task in the paper; here, a layer that the wiring calls.
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
    /// All tasks, from the host interface down.
    pub const ALL: [Task; 6] =
        [Task::Host, Task::Ftam, Task::Presentation, Task::Session, Task::Transport, Task::Lower];

    /// Returns the paper's name for the task.
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

/// A hook that the wiring calls when it switches between tasks.
pub trait Meter {
    /// Reports that the wiring switches to `task`, passing it a unit of this many bytes.
    fn turn_to(&mut self, task: Task, bytes: usize);
    /// Reports that the wiring is idle.
    fn rest(&mut self);
}

impl Meter for () {
    #[inline]
    fn turn_to(&mut self, _task: Task, _bytes: usize) {}
    #[inline]
    fn rest(&mut self) {}
}
