//! Packet memory compared with a cyclic ring of clusters and with the global allocator.
//!
//! Claim     pages that are shared by reference, that can be cut anywhere and that any holder can free cost
//!           at most twice as much as paper \[1\]'s clusters, which have none of these features.
//! Ring      [`Ring`]: clusters prepared in advance, each a pointer to a header and several to content pages,
//!           taken in cyclic order and freed as a whole. If a cluster is still in use when its turn comes, it
//!           is not taken.
//! Vec       a header and pages of the same sizes from the global allocator, freed after each use.
//! Rounds    a burst of frames is allocated, and then the whole burst is released, so that the ring and the
//!           pools stay in the cache to the same extent.
//! Fair      only 64 bytes of payload are appended per page, so that memory management is measured and not
//!           copying. Pools and ring compute the checksum while they copy, as paper \[1\]'s board did; `Vec`
//!           only copies. Each side also counts and checks the memory that it takes.

use kiban_base::{Page, PagePool, Pdu, PduPool, Slice, Sum, copy_and_sum};
use kiban_lab::{Bench, Options, Target, Trial, Unit};
use std::hint::black_box;

const PAGE_BYTES: usize = 4096;
/// The number of frames that are allocated before all of them are released.
const BURST: usize = 32;
/// The capacity of the ring and of the pools.
const CAPACITY: usize = 256;
/// The number of pages in a cluster, for a payload of 8192 bytes.
const CLUSTER_PAGES: usize = 2;
const HEADER_BYTES: usize = 128;
/// A short payload, so that memory management is measured and not copying.
const SHORT_BYTES: usize = 64;

/// A simple implementation of figure 3 of paper \[1\]: header memory, content memory, and clusters that point
/// into both.
struct Ring {
    headers: Vec<[u8; HEADER_BYTES]>,
    content: Vec<[u8; PAGE_BYTES]>,
    clusters: Vec<Cluster>,
    next: usize,
}

struct Cluster {
    header: u32,
    pages: [Extent; CLUSTER_PAGES],
    out: bool,
}

/// A content page and the length of its valid part.
#[derive(Clone, Copy)]
struct Extent {
    page: u32,
    offset: u32,
    length: u32,
}

impl Ring {
    fn new(clusters: usize) -> Ring {
        let cluster = |index: usize| Cluster {
            header: index as u32,
            pages: std::array::from_fn(|at| Extent {
                page: (index * CLUSTER_PAGES + at) as u32,
                offset: 0,
                length: 0,
            }),
            out: false,
        };
        Ring {
            headers: vec![[0; HEADER_BYTES]; clusters],
            content: vec![[0; PAGE_BYTES]; clusters * CLUSTER_PAGES],
            clusters: (0..clusters).map(cluster).collect(),
            next: 0,
        }
    }

    /// Returns the next cluster in cyclic order, or `None` if it is still in use.
    fn take(&mut self) -> Option<usize> {
        let index = self.next;
        let cluster = &mut self.clusters[index];
        if cluster.out {
            return None;
        }
        cluster.out = true;
        cluster.pages.iter_mut().for_each(|extent| (extent.offset, extent.length) = (0, 0));
        self.headers[cluster.header as usize][0] = 0;
        self.next = if index + 1 == self.clusters.len() { 0 } else { index + 1 };
        Some(index)
    }

    /// Appends `bytes` to a page of a cluster, and computes their checksum at the same time.
    fn append(&mut self, cluster: usize, page: usize, bytes: &[u8]) -> Sum {
        let extent = &mut self.clusters[cluster].pages[page];
        let from = (extent.offset + extent.length) as usize;
        extent.length += bytes.len() as u32;
        copy_and_sum(&mut self.content[extent.page as usize][from..from + bytes.len()], bytes)
    }

    fn release(&mut self, cluster: usize) {
        self.clusters[cluster].out = false;
    }
}

/// Returns nanoseconds per item; one call of `burst` handles [`BURST`] items.
fn each(trial: &mut Trial, mut burst: impl FnMut()) -> f64 {
    let bursts = 64;
    let span = trial.measure(|| {
        (0..bursts).for_each(|_| burst());
        (bursts * BURST) as f64
    });
    span.cpu_nanos_each()
}

fn ring_frames(trial: &mut Trial, payload: &[u8]) -> f64 {
    let (mut ring, mut out) = (Ring::new(CAPACITY), Vec::with_capacity(BURST));
    each(trial, || {
        for _ in 0..BURST {
            let cluster = ring.take().expect("the burst is smaller than the ring");
            if !payload.is_empty() {
                (0..CLUSTER_PAGES).for_each(|page| {
                    black_box(ring.append(cluster, page, payload));
                });
            }
            out.push(black_box(cluster));
        }
        out.drain(..).for_each(|cluster| ring.release(cluster));
    })
}

fn vec_frames(trial: &mut Trial, payload: &[u8]) -> f64 {
    let mut out: Vec<(Vec<u8>, [Vec<u8>; CLUSTER_PAGES])> = Vec::with_capacity(BURST);
    each(trial, || {
        for _ in 0..BURST {
            let header = Vec::with_capacity(HEADER_BYTES);
            let pages = std::array::from_fn(|_| {
                let mut page = Vec::with_capacity(PAGE_BYTES);
                page.extend_from_slice(payload);
                page
            });
            out.push(black_box((header, pages)));
        }
        out.clear();
    })
}

/// Measures frames: a PDU block and two pages with a short payload in each, appended to the PDU's body.
fn kiban_frames(trial: &mut Trial, payload: &[u8]) -> f64 {
    let (mut pool, mut blocks) =
        (PagePool::new(CAPACITY * CLUSTER_PAGES, PAGE_BYTES), PduPool::new(CAPACITY));
    let mut out: Vec<Pdu> = Vec::with_capacity(BURST);
    let figure = each(trial, || {
        for _ in 0..BURST {
            let mut pdu = blocks.take().expect("the burst is smaller than the pool");
            for _ in 0..CLUSTER_PAGES {
                let mut page = pool.take().expect("the burst is smaller than the pool");
                let sum = page.fill(payload).1;
                pdu.push_body(Slice::from((page, sum))).expect("two slices fit");
            }
            out.push(black_box(pdu));
        }
        for mut pdu in out.drain(..) {
            pdu.drain_body().for_each(|slice| pool.give(slice));
            blocks.give(pdu);
        }
    });
    assert_eq!((pool.available(), blocks.available()), (pool.capacity(), blocks.capacity()));
    figure
}

/// Measures pages alone: allocated, filled with a short payload, and released with their last slice.
fn kiban_pages(trial: &mut Trial, payload: &[u8]) -> f64 {
    let mut pool = PagePool::new(CAPACITY, PAGE_BYTES);
    let mut out: Vec<Slice> = Vec::with_capacity(BURST);
    each(trial, || {
        for _ in 0..BURST {
            let mut page: Page = pool.take().expect("the burst is smaller than the pool");
            out.push(black_box(page.append(payload).expect("the page is empty")));
        }
        out.clear();
    })
}

/// Measures PDU blocks alone.
fn kiban_blocks(trial: &mut Trial) -> f64 {
    let mut blocks = PduPool::new(CAPACITY);
    let mut out: Vec<Pdu> = Vec::with_capacity(BURST);
    each(trial, || {
        for _ in 0..BURST {
            out.push(black_box(blocks.take().expect("the burst is smaller than the pool")));
        }
        out.drain(..).for_each(|pdu| blocks.give(pdu));
    })
}

pub(crate) fn run(options: &Options) {
    let payload = crate::noise::noise(1, SHORT_BYTES);
    let mut bench = Bench::new("memory", options.clone());
    let within = Target::ratio_at_most(2.0);
    bench.compare(
        "a PDU: allocated and released",
        Unit::Nanoseconds,
        ("kiban PDU block", kiban_blocks),
        ("ring: a cluster of 1 header, 2 pages", |trial: &mut Trial| ring_frames(trial, &[])),
        within,
    );
    bench.compare(
        "a frame: PDU and 2 pages allocated, 64 bytes appended to each with a checksum, released",
        Unit::Nanoseconds,
        ("kiban PDU and pages", |trial: &mut Trial| kiban_frames(trial, &payload)),
        ("ring: a cluster, the same", |trial: &mut Trial| ring_frames(trial, &payload)),
        within,
    );
    bench.compare(
        "the same frame, compared with the allocator",
        Unit::Nanoseconds,
        ("kiban PDU and pages", |trial: &mut Trial| kiban_frames(trial, &payload)),
        ("Vec: a header and 2 pages, copied without a checksum", |trial: &mut Trial| {
            vec_frames(trial, &payload)
        }),
        Target::None,
    );
    bench.single(
        "a page: allocated, 64 bytes appended with a checksum, released",
        Unit::Nanoseconds,
        ("kiban page", |trial: &mut Trial| kiban_pages(trial, &payload)),
        Target::None,
    );
    bench.finish();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_wraps_and_refuses_pages_in_use() {
        let mut ring = Ring::new(3);
        assert_eq!([ring.take(), ring.take(), ring.take(), ring.take()], [Some(0), Some(1), Some(2), None]);
        ring.release(1);
        assert_eq!(ring.take(), None, "it is the first one's turn");
        ring.release(0);
        assert_eq!([ring.take(), ring.take(), ring.take()], [Some(0), Some(1), None]);
        ring.append(0, 1, b"abc");
        assert_eq!(ring.append(0, 1, b"def"), Sum::of(b"def"));
        assert_eq!(&ring.content[1][..6], b"abcdef");
    }
}
