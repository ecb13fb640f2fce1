//! The program's pages as memory that is shared with the board.
//!
//! Purpose        registers memory that the program allocated itself. The board accesses only memory that it
//!                created, so at registration the pages of the range are replaced: their contents are copied
//!                to new shared memory, which is then mapped in their place (mremap(2)).
//! Granularity    whole pages. What lies beside the registered bytes in the same pages is shared with the
//!                board's process, too, but peers reach only the registered bytes.
//! Known pages    /proc/self/maps tells which pages are shared already, by the inodes of their memory. So a
//!                program may unmap registered memory, and map other memory at the same addresses.
//! End            when the last region of shared memory is deregistered, its pages become private again.
//! fork           shared pages are not inherited (MADV_DONTFORK), as after ibv_fork_init(3) with hardware.
//! Refused        the stack, shared mappings (shmget(2), files), huge pages of hugetlbfs, and memory that is
//!                not readable and writable. The error names the mapping.
//! Limits         another thread must not write to the pages during the call: the write may be lost. The
//!                caller keeps the engine's own threads from it ([`Exclusive`]), which free memory of the
//!                program's heap. Programs with several threads should register memory that is aligned to
//!                pages.

use crate::board_nic::Door;
use kiban_rdma::hif::{MEMORY_AT, PIECES_MAX, Piece};
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap_fixed};
use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::with_exposed_provenance_mut;

/// Runs work while no thread of the engine does.
pub(super) type Exclusive<'a> = &'a dyn Fn(&mut dyn FnMut());

/// What identifies the memory behind a mapping: device and inode.
type Identity = (String, u64);

/// A mapping of this process, as /proc/self/maps shows it.
struct Mapping {
    range: Range<usize>,
    rights: String,
    offset: u64,
    identity: Identity,
    name: String,
}

impl Mapping {
    fn read_all() -> io::Result<Vec<Mapping>> {
        let text = std::fs::read_to_string("/proc/self/maps")?;
        Ok(text.lines().filter_map(Mapping::of_line).collect())
    }

    fn of_line(line: &str) -> Option<Mapping> {
        let mut words = line.splitn(6, ' ');
        let (from, to) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let (range, rights) = (number(from)?..number(to)?, words.next()?.to_owned());
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let (device, inode) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let name = words.next().unwrap_or_default().trim().to_owned();
        Some(Mapping { range, rights, offset, identity: (device, inode), name })
    }

    /// Returns why the pages of this mapping cannot be replaced, if they cannot.
    fn obstacle(&self) -> Option<String> {
        let here = 0u8;
        let is_stack = self.name == "[stack]" || self.range.contains(&(&raw const here).addr());
        let is_ours = self.name.starts_with("/memfd:kiban");
        let why = match self.rights.as_str() {
            _ if is_stack => "is a stack",
            "rw-p" => return None,
            "rw-s" if is_ours => return None,
            "rw-s" => "is shared memory or a file",
            _ => "is not readable and writable",
        };
        let Range { start, end } = self.range;
        let name = if self.name.is_empty() { "anonymous memory" } else { &self.name };
        Some(format!("the memory at {start:#x} to {end:#x} ({name}) {why}"))
    }
}

/// Memory that is shared with the board.
struct Shared {
    identity: Identity,
    /// Number of registered pieces.
    users: usize,
}

/// The pages that are shared with the board.
#[derive(Default)]
pub(super) struct Pages {
    shared: HashMap<u32, Shared>,
    /// The shared memories of each region, by its key.
    regions: HashMap<u32, Vec<u32>>,
}

fn page_bytes() -> usize {
    // SAFETY: sysconf(3) takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn at(address: usize) -> *mut c_void {
    with_exposed_provenance_mut(address)
}

impl Pages {
    /// Shares the pages of a range of addresses, as far as they are not shared yet. Returns the pieces that
    /// the range consists of.
    ///
    /// # Errors
    /// The memory cannot be shared, or the board has ended or refuses.
    pub(super) fn share(
        &mut self,
        door: &Door,
        range: &Range<usize>,
        exclusive: Exclusive<'_>,
    ) -> io::Result<Vec<Piece>> {
        let page = page_bytes();
        let (mut at, end) = (range.start & !(page - 1), range.end.next_multiple_of(page));
        let mappings = Mapping::read_all()?;
        // Replace as many adjacent pages as possible at a time.
        let mut runs: Vec<Range<usize>> = Vec::new();
        for mapping in &mappings {
            if mapping.range.end <= at || at >= end {
                continue;
            }
            if mapping.range.start > at {
                return Err(io::Error::from_raw_os_error(libc::EFAULT));
            }
            let part = at..mapping.range.end.min(end);
            at = part.end;
            if self.memory_of(mapping).is_some() {
                continue;
            }
            if let Some(why) = mapping.obstacle() {
                let message =
                    format!("{why}, which the NIC of a board cannot access: use memory of malloc(3)");
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
            match runs.last_mut() {
                Some(run) if run.end == part.start => run.end = part.end,
                _ => runs.push(part),
            }
        }
        if at < end {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
        for run in &runs {
            self.replace(door, run, exclusive)?;
        }
        let mappings = if runs.is_empty() { mappings } else { Mapping::read_all()? };
        self.pieces(&mappings, range)
    }

    /// Returns the shared memory behind a mapping.
    fn memory_of(&self, mapping: &Mapping) -> Option<u32> {
        let found = self.shared.iter().find(|(_, shared)| shared.identity == mapping.identity);
        found.filter(|_| mapping.rights == "rw-s").map(|(&memory, _)| memory)
    }

    /// Replaces pages by shared memory with the same contents.
    fn replace(&mut self, door: &Door, run: &Range<usize>, exclusive: Exclusive<'_>) -> io::Result<()> {
        let (bytes, target) = (run.len(), at(run.start));
        let (memory, region) = door.share(bytes + MEMORY_AT)?;
        let (base, _) = region.raw();
        let mut replaced = Ok(());
        // SAFETY: the shared memory has `bytes` bytes after the first page, and nothing else in this process
        // uses it yet. The run is mapped and readable. mremap(2) with an old size of 0 maps the same shared
        // pages a second time, at the addresses of the run, which the program has registered.
        exclusive(&mut || unsafe {
            let source = base.as_ptr().add(MEMORY_AT);
            std::ptr::copy_nonoverlapping(target.cast::<u8>().cast_const(), source, bytes);
            replaced = mremap_fixed(source.cast(), 0, bytes, MremapFlags::MAYMOVE, target).map(drop);
        });
        replaced?;
        // SAFETY: this changes no byte. If it fails, a child inherits the pages, as it does without it.
        let _ = unsafe { madvise(target, bytes, Advice::LinuxDontFork) };
        let mapping = Mapping::read_all()?.into_iter().find(|mapping| mapping.range.contains(&run.start));
        let mapping = mapping.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        self.shared.insert(memory, Shared { identity: mapping.identity, users: 0 });
        Ok(())
    }

    fn pieces(&self, mappings: &[Mapping], range: &Range<usize>) -> io::Result<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::new();
        let within = |mapping: &&Mapping| mapping.range.start < range.end && mapping.range.end > range.start;
        for mapping in mappings.iter().filter(within) {
            let part = mapping.range.start.max(range.start)..mapping.range.end.min(range.end);
            let found = self.memory_of(mapping).zip(mapping.offset.checked_sub(MEMORY_AT as u64));
            let (memory, offset) = found.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
            let offset = offset + (part.start - mapping.range.start) as u64;
            match pieces.last_mut() {
                Some(last) if (last.memory, last.offset + last.length) == (memory, offset) => {
                    last.length += part.len() as u64;
                }
                _ => pieces.push(Piece { memory, offset, length: part.len() as u64 }),
            }
        }
        if pieces.len() > PIECES_MAX {
            let message = "the memory consists of too many parts: register larger regions first";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        Ok(pieces)
    }

    /// Records a region of registered pieces.
    pub(super) fn add_region(&mut self, key: u32, pieces: &[Piece]) {
        let memories: Vec<u32> = pieces.iter().map(|piece| piece.memory).collect();
        for memory in &memories {
            if let Some(shared) = self.shared.get_mut(memory) {
                shared.users += 1;
            }
        }
        self.regions.insert(key, memories);
    }

    /// Removes a region. Returns the memories that no region uses any more; their pages are private again.
    pub(super) fn remove_region(&mut self, key: u32, exclusive: Exclusive<'_>) -> Vec<u32> {
        for memory in self.regions.remove(&key).unwrap_or_default() {
            if let Some(shared) = self.shared.get_mut(&memory) {
                shared.users -= 1;
            }
        }
        self.take_unused(exclusive)
    }

    /// Makes pages private again that no region uses. Returns their memories.
    pub(super) fn take_unused(&mut self, exclusive: Exclusive<'_>) -> Vec<u32> {
        let unused: Vec<(u32, Shared)> = self.shared.extract_if(|_, shared| shared.users == 0).collect();
        if !unused.is_empty()
            && let Ok(mappings) = Mapping::read_all()
        {
            let is_unused =
                |mapping: &&Mapping| unused.iter().any(|(_, shared)| shared.identity == mapping.identity);
            for mapping in mappings.iter().filter(is_unused) {
                // If the system is out of memory, the pages stay shared with nobody.
                let _ = make_private(&mapping.range, exclusive);
            }
        }
        unused.into_iter().map(|(memory, _)| memory).collect()
    }
}

/// Replaces shared pages by private ones with the same contents.
fn make_private(range: &Range<usize>, exclusive: Exclusive<'_>) -> io::Result<()> {
    let (bytes, target) = (range.len(), at(range.start));
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: this creates a new mapping at an address that the system chooses.
    let private = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, rights, MapFlags::PRIVATE)? };
    let mut replaced = Ok(());
    // SAFETY: both ranges are mapped and have this length; the new one moves to the addresses of the other.
    exclusive(&mut || unsafe {
        std::ptr::copy_nonoverlapping(target.cast::<u8>().cast_const(), private.cast::<u8>(), bytes);
        replaced = mremap_fixed(private, bytes, bytes, MremapFlags::MAYMOVE, target).map(drop);
    });
    if let Err(error) = replaced {
        // SAFETY: nothing else uses the new mapping.
        let _ = unsafe { rustix::mm::munmap(private, bytes) };
        return Err(error.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_with_and_without_names() {
        let heap = Mapping::of_line("55d0c000-55d2d000 rw-p 00000000 00:00 0                  [heap]");
        let heap = heap.expect("a mapping");
        assert_eq!((heap.range.clone(), heap.name.as_str()), (0x55d0_c000..0x55d2_d000, "[heap]"));
        assert!(heap.obstacle().is_none());
        let memfd = "7f00-8f00 rw-s 00001000 00:01 77 /memfd:kiban (deleted)";
        let memfd = Mapping::of_line(memfd).expect("a mapping");
        assert_eq!((memfd.offset, memfd.identity.clone()), (4096, ("00:01".to_owned(), 77)));
        assert!(memfd.obstacle().is_none());
        for line in [
            "7f00-8f00 rw-s 00000000 00:01 5 /SYSV00000000 (deleted)",
            "7f00-8f00 r--p 00000000 08:01 9 /usr/lib/libc.so.6",
            "7ffd0000-7ffe0000 rw-p 00000000 00:00 0 [stack]",
        ] {
            assert!(Mapping::of_line(line).expect("a mapping").obstacle().is_some(), "{line}");
        }
        let bare = Mapping::of_line("7f00-8f00 rw-p 00000000 00:00 0 ").expect("a mapping");
        assert!(bare.name.is_empty() && bare.obstacle().is_none());
    }

    #[test]
    fn the_stack_of_a_thread_cannot_be_replaced() {
        let local = 7u8;
        let here = (&raw const local).addr();
        let mapping = Mapping::read_all().expect("/proc").into_iter().find(|its| its.range.contains(&here));
        assert!(mapping.expect("it is mapped").obstacle().is_some_and(|why| why.contains("stack")));
    }

    #[test]
    fn private_pages_keep_their_contents() {
        let bytes = 3 * page_bytes();
        let memory = kiban_os::channel::make(bytes).expect("memory");
        let region =
            kiban_os::channel::map(std::os::fd::AsFd::as_fd(&memory), bytes..=bytes).expect("memory");
        region.write(region.address() + 5000, kiban_base::SharedBytes::from(&b"kept"[..])).expect("within");
        let start = region.raw().0.as_ptr().addr();
        make_private(&(start..start + bytes), &|work| work()).expect("memory");
        assert_eq!(region.read(region.address() + 5000, 4).as_deref(), Some(&b"kept"[..]));
        let mapping = Mapping::read_all().expect("/proc").into_iter().find(|its| its.range.contains(&start));
        assert_eq!(mapping.expect("it is mapped").rights, "rw-p");
    }
}
