//! The files that an RDMA NIC's epoll watches.

use rustix::event::epoll::EventData;

/// The kind and number of a watched file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum File {
    Link(u32),
    Listener(u32),
    Farewell(u32),
    Offer(u32),
    Shared(u32),
    Efe(u16),
    Board,
    Roce,
}

impl File {
    pub(super) fn data(self) -> EventData {
        EventData::new_u64(match self {
            File::Efe(port) => 1 << 32 | u64::from(port),
            File::Board => 7 << 32,
            File::Roce => 8 << 32,
            File::Listener(listener) => 2 << 32 | u64::from(listener),
            File::Link(end) => 3 << 32 | u64::from(end),
            File::Farewell(link) => 4 << 32 | u64::from(link),
            File::Offer(end) => 5 << 32 | u64::from(end),
            File::Shared(end) => 6 << 32 | u64::from(end),
        })
    }

    pub(super) fn of(data: u64) -> Option<File> {
        match data >> 32 {
            1 => Some(File::Efe(data as u16)),
            2 => Some(File::Listener(data as u32)),
            3 => Some(File::Link(data as u32)),
            4 => Some(File::Farewell(data as u32)),
            5 => Some(File::Offer(data as u32)),
            6 => Some(File::Shared(data as u32)),
            7 => Some(File::Board),
            8 => Some(File::Roce),
            _ => None,
        }
    }
}
