//! The cost of processing on a board: a cost model of the board in paper \[1\] (1995).
//!
//! Goal      derive the paper's figures from one set of constants, each with a name and a source.
//! Counted   costs per PDU, per byte, per transfer, per interrupt and per search step: see [`Costs`]. The
//!           board's code is unchanged; the model decides only *when* the board is called (`processor.rs`)
//!           and how its memory is divided.
//! Switches  the paper's five mechanisms can be switched off one by one ([`Mechanisms`]);
//!           [`Costs::of_arrival`] and [`Costs::of_departure`] compute the additional cost.
//! Memory    clusters are prepared in advance, and allocated and freed as a whole ([`ContentMemory`]).
//! Sources   [`CONSTANTS`] states for every constant whether it was published, fitted (and to which
//!           published value), or assumed because no published value depends on it.

use std::time::Duration;

/// The payload of a segment on paper \[1\]'s board, bytes.
pub const PAYLOAD_BYTES: u32 = 8192;
/// A frame of at most this length in bytes (three cells) carries only headers.
const SHORT_BYTES: usize = 3 * 48;

/// The five mechanisms of paper \[1\], §3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// Headers and contents in separate memories, PDUs as clusters (§3.1). Without it, payload is copied when
    /// a PDU is built and when it is taken apart.
    Separation,
    /// The checksum is computed while data moves (§3.2). Without it, the processor reads every byte.
    Sum,
    /// Window scaling (§3.3 (1)). Without it, the window is limited to 64 KB.
    Scaling,
    /// Pipeline rescheduling (§3.3 (2)): arrivals are handled between two PDUs. Without it, each arrival
    /// causes an interrupt.
    Deferral,
    /// Chained transfers (§3.3 (3)). Without them, there is a set-up and an interrupt for every page and
    /// header.
    Chaining,
}

impl Mechanism {
    /// All five mechanisms, in the order of the paper.
    pub const ALL: [Mechanism; 5] =
        [Mechanism::Separation, Mechanism::Sum, Mechanism::Scaling, Mechanism::Deferral, Mechanism::Chaining];

    /// Returns the mechanism's name, one word.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Separation => "separation",
            Mechanism::Sum => "sum",
            Mechanism::Scaling => "scaling",
            Mechanism::Deferral => "deferral",
            Mechanism::Chaining => "chaining",
        }
    }
}

/// Which of the mechanisms a board has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mechanisms {
    /// See [`Mechanism::Separation`].
    pub separation: bool,
    /// See [`Mechanism::Sum`].
    pub sum: bool,
    /// See [`Mechanism::Scaling`].
    pub scaling: bool,
    /// See [`Mechanism::Deferral`].
    pub deferral: bool,
    /// See [`Mechanism::Chaining`].
    pub chaining: bool,
}

impl Mechanisms {
    /// The board of the paper.
    pub const ALL: Mechanisms =
        Mechanisms { separation: true, sum: true, scaling: true, deferral: true, chaining: true };

    /// Returns all mechanisms but one.
    pub fn without(mechanism: Mechanism) -> Mechanisms {
        let mut rest = Mechanisms::ALL;
        *match mechanism {
            Mechanism::Separation => &mut rest.separation,
            Mechanism::Sum => &mut rest.sum,
            Mechanism::Scaling => &mut rest.scaling,
            Mechanism::Deferral => &mut rest.deferral,
            Mechanism::Chaining => &mut rest.chaining,
        } = false;
        rest
    }
}

/// The costs of the processor's operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// The cost of sending or receiving a PDU with payload, if all five mechanisms are on. The cost covers
    /// TCP, IP and LLC, the host's command, and one set-up for each of the two transfers.
    pub pdu: Duration,
    /// The cost of sending or receiving a PDU without payload.
    pub acknowledgment: Duration,
    /// One step of the search for a session: 4.3BSD searches a list, and on average passes half of it.
    pub search: Duration,
    /// The cost, per task that already waits for a cluster, when another task starts to wait: 4.3BSD keeps
    /// the waiting tasks in a list, walks it when a cluster is freed, and wakes all of them.
    pub waiter: Duration,
    /// A task switch.
    pub switch: Duration,
    /// Entering and leaving an interrupt.
    pub interrupt: Duration,
    /// Setting up a transfer.
    pub setup: Duration,
    /// Reading a byte to sum it, picoseconds.
    pub sum_byte_ps: u64,
    /// Copying a byte, picoseconds.
    pub copy_byte_ps: u64,
    /// How long the segmentation chip pauses between two PDUs, while the line is idle.
    pub gap: Duration,
}

/// How content memory is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentMemory {
    /// Bytes in each direction, headers included.
    pub bytes: u64,
    /// Bytes that a cluster occupies, however short its PDU.
    pub cluster_bytes: u64,
    /// Number of clusters in each direction whose memory is used for headers instead.
    pub header_clusters: u64,
    /// Bytes of a content page. The transfers of a cluster are chains of pages.
    pub page_bytes: u32,
    /// Receive memory prepared for each session, in windows: one window is being filled while the other is
    /// emptied.
    pub prepared_windows: u64,
}

/// A board as the model sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CostModel {
    /// Which of the five mechanisms the board has.
    pub mechanisms: Mechanisms,
    /// The costs of its processor.
    pub costs: Costs,
    /// Its memory.
    pub memory: ContentMemory,
}

/// The source of a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A source states the value, or it follows from a stated value.
    Sourced(&'static str),
    /// The value was fitted to reproduce a published value.
    Fitted(&'static str),
    /// A plausible value; no published value depends on it.
    Assumed(&'static str),
}

/// One constant of the model, for tables.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// The field.
    pub name: &'static str,
    /// The constant's value in a model, with its unit.
    pub value: fn(&CostModel) -> String,
    /// Its source.
    pub origin: Origin,
}

/// The board of paper \[1\]: the model's only set of constants.
pub const BOARD_1995: CostModel = CostModel {
    mechanisms: Mechanisms::ALL,
    costs: Costs {
        pdu: Duration::from_nanos(459_500),
        acknowledgment: Duration::from_nanos(40_000),
        search: Duration::from_nanos(160),
        waiter: Duration::from_nanos(870),
        switch: Duration::from_nanos(16_000),
        interrupt: Duration::from_nanos(10_000),
        setup: Duration::from_nanos(10_000),
        sum_byte_ps: 12_500,
        copy_byte_ps: 25_000,
        gap: Duration::from_nanos(4_300),
    },
    memory: ContentMemory {
        bytes: 8 << 20,
        cluster_bytes: 64 << 10,
        header_clusters: 1,
        page_bytes: 4096,
        prepared_windows: 2,
    },
};

impl Costs {
    /// Returns the cost of receiving a frame or packet of `bytes` bytes if there are `sessions` to search.
    /// The cost of a frame includes the processing of its cells.
    pub fn of_arrival(&self, model: &CostModel, bytes: usize, sessions: usize) -> Duration {
        let search = self.search * (sessions.saturating_sub(1) / 2) as u32;
        let handling = if bytes > SHORT_BYTES { self.of_payload(model, bytes) } else { self.acknowledgment };
        // Without deferral, an arrival interrupts the sending task, which costs two task switches.
        let interruption =
            if model.mechanisms.deferral { Duration::ZERO } else { self.interrupt + 2 * self.switch };
        search + handling + interruption
    }

    /// Returns the cost of sending `pdus` PDUs with `bytes` bytes of payload in all, and `others` PDUs
    /// without payload.
    pub fn of_departure(&self, model: &CostModel, pdus: u64, bytes: u64, others: u64) -> Duration {
        let length = bytes.checked_div(pdus).unwrap_or(0) as usize;
        self.of_payload(model, length) * pdus as u32 + self.acknowledgment * others as u32
    }

    fn of_payload(&self, model: &CostModel, bytes: usize) -> Duration {
        let Mechanisms { separation, sum, chaining, .. } = model.mechanisms;
        let per_byte =
            if sum { 0 } else { self.sum_byte_ps } + if separation { 0 } else { self.copy_byte_ps };
        let mut cost = self.pdu + Duration::from_nanos(per_byte * bytes as u64 / 1000);
        if !chaining {
            // The host's transfer has one part per page, and the line's transfer has one more, for the
            // header. `pdu` includes one set-up for each transfer.
            let pages = (bytes as u32).min(PAYLOAD_BYTES).div_ceil(model.memory.page_bytes).max(1);
            cost += (2 * pages - 1) * (self.setup + self.interrupt);
        }
        cost
    }

    /// Returns the cost of writers that found no free cluster, while `waiters` others waited.
    pub fn of_waits(&self, waiters: u64) -> Duration {
        self.waiter * waiters as u32
    }
}

impl ContentMemory {
    /// Clusters in each direction.
    pub fn clusters(&self) -> u64 {
        self.bytes / self.cluster_bytes - self.header_clusters
    }

    /// Returns the number of sessions for which there are enough receive clusters, with windows of
    /// `window_bytes`.
    pub fn sessions_max(&self, window_bytes: u32) -> usize {
        let each = u64::from(window_bytes).div_ceil(self.cluster_bytes) * self.prepared_windows;
        (self.clusters() / each) as usize
    }
}

/// Number of frames that the segmentation chip holds. Half of them are reserved for frames without payload.
pub(crate) const FRAMES_MAX: usize = 4;

/// All constants of a model, for tables.
pub const CONSTANTS: [Constant; 18] = {
    use Origin::{Assumed, Fitted, Sourced};
    [
        Constant {
            name: "costs.pdu",
            value: |model| micros(model.costs.pdu),
            origin: Fitted(
                "peak of 131.2 Mbit/s with 16 KB and one acknowledgement per PDU: pdu + acknowledgment = 499.5 us",
            ),
        },
        Constant {
            name: "costs.acknowledgment",
            value: |model| micros(model.costs.acknowledgment),
            origin: Assumed(
                "the split of the sum above; with one acknowledgement per two PDUs, the line must remain the limit",
            ),
        },
        Constant {
            name: "costs.search",
            value: |model| micros(model.costs.search),
            origin: Assumed(
                "4.3BSD searches a linear list of sessions: about ten instructions each at about 64 MIPS \
                 (64 SPECint92)",
            ),
        },
        Constant {
            name: "costs.waiter",
            value: |model| micros(model.costs.waiter),
            origin: Fitted(
                "with buffers of 48 KB and 50 sessions, throughput is 6.4 % below the peak; one cost per \
                 waiting session fits both 24 KB and 48 KB",
            ),
        },
        Constant {
            name: "costs.switch",
            value: |model| micros(model.costs.switch),
            origin: Assumed("paid only without deferral"),
        },
        Constant {
            name: "costs.gap",
            value: |model| micros(model.costs.gap),
            origin: Fitted(
                "one session with 256 KB reaches 133.4 Mbit/s, which is 491.3 us per PDU; the cells take 487.0 us \
                 of that",
            ),
        },
        Constant {
            name: "costs.interrupt",
            value: |model| micros(model.costs.interrupt),
            origin: Assumed("paid only without deferral or chaining"),
        },
        Constant {
            name: "costs.setup",
            value: |model| micros(model.costs.setup),
            origin: Assumed(
                "charged separately only without chaining; pdu already includes one per transfer",
            ),
        },
        Constant {
            name: "costs.sum_byte",
            value: |model| format!("{} ns", model.costs.sum_byte_ps as f64 / 1000.0),
            origin: Assumed("memory is read at 80 MB/s; paid only without checksumming on the fly"),
        },
        Constant {
            name: "costs.copy_byte",
            value: |model| format!("{} ns", model.costs.copy_byte_ps as f64 / 1000.0),
            origin: Assumed("memory is copied at 40 MB/s; paid only without separation"),
        },
        Constant {
            name: "memory.bytes",
            value: |model| format!("{} MiB", model.memory.bytes >> 20),
            origin: Sourced("paper [1], table 1: 8 MB each for sending and receiving"),
        },
        Constant {
            name: "memory.cluster",
            value: |model| format!("{} KiB", model.memory.cluster_bytes >> 10),
            origin: Fitted(
                "60 sessions need 120 clusters with 16 KB windows, which fit, and 180 with 24 KB windows, which do \
                 not, so a cluster has 47 to 70 KiB",
            ),
        },
        Constant {
            name: "memory.header_clusters",
            value: |model| model.memory.header_clusters.to_string(),
            origin: Fitted(
                "with 256 KB, the paper has no data past 15 sessions; header memory (§3.1) is assumed to be part of \
                 the 8 MB",
            ),
        },
        Constant {
            name: "memory.prepared_windows",
            value: |model| model.memory.prepared_windows.to_string(),
            origin: Fitted(
                "with 256 KB, the paper has no data past 15 sessions: 15 x 2 x 4 clusters fit, 16 x 2 x 4 do not",
            ),
        },
        Constant {
            name: "memory.page",
            value: |model| format!("{} bytes", model.memory.page_bytes),
            origin: Assumed("counts only without chaining"),
        },
        Constant {
            name: "frames in the chip",
            value: |_| (FRAMES_MAX / 2).to_string(),
            origin: Assumed("the current frame and the next; more would only let the processor run ahead"),
        },
        Constant {
            name: "payload",
            value: |_| format!("{PAYLOAD_BYTES} bytes"),
            origin: Sourced("paper [1], §4.1"),
        },
        Constant {
            name: "line length",
            value: |_| "2 x 100 m".to_owned(),
            origin: Assumed("within one room: 0.5 us of propagation per 100 m"),
        },
    ]
};

fn micros(length: Duration) -> String {
    format!("{} us", length.as_nanos() as f64 / 1000.0)
}
