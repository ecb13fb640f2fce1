//! Runs several flows at once over an ATM network that polices them, and reports rates, losses and delay
//! variation of each flow over time.
//!
//! ```text
//! Plan (TOML) ► run: sites, switches, boards, terminals in virtual time ► Outcome ► table, JSON, CSV, pictures
//! lecture(…)  ┘ └► real: the same sources and sinks on two hosts ───────────────┘ └► Policing: a question for sweeps
//! ```
//!
//! Goal      to show what a contract does to different kinds of traffic that share it, which is the open
//!           question of paper \[2\].
//! Network   a star: each site has a switch, a line to the network's switch, and permanent virtual paths to
//!           other sites. A path has a contract; the network's switch polices it with GCRA at its input, and
//!           drops or tags the excess cells.
//! Exact     virtual time: the same plan and seed give the same figures on any host.
//! Server    a flow can compose the pictures of others, as the server of a conference does.
//! Left out  virtual paths that cross several switches of the network; signalling.

mod collect;
mod lecture;
mod network;
mod outcome;
mod plan;
mod policing;
pub(crate) mod real;
mod traffic;

pub use lecture::{
    Lecture, MPEG2_AUDIO_BPS, MPEG2_VIDEO_BPS, Multiplexing, SOURCE_MBPS, Shaping, TERMINAL_MBPS, mpeg2,
};
pub use network::run;
pub use outcome::{FlowOutcome, Medium, Network as NetworkOutcome, Outcome, Real, Sample};
pub use plan::{Fec, Flow, Kind, Network, Plan, PlanError, Pvc, Queues, Site};
pub use policing::Policing;
pub use real::{FlowSample, MixRequest, MixTotal, run as run_over};
