//! A slab: values addressed by number. The number of a removed value becomes invalid.
//!
//! A number contains an index and a generation. Hosts and peers store such numbers and pass them back; stale
//! and invented numbers are rejected.

use alloc::vec::Vec;

const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// A collection of values addressed by number.
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    most: usize,
    salt: u32,
}

#[derive(Debug)]
struct Entry<T> {
    number: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    /// Creates an empty slab for up to `most` values, capped at 2^20 - 1. `salt` offsets the generations so
    /// that the numbers of two slabs differ. No number is zero.
    pub fn new(most: usize, salt: u32) -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new(), most: most.min(INDEX_MASK as usize), salt }
    }

    /// Inserts a value and returns its number, or drops the value and returns `None` if the slab is full.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            let place = &mut self.entries[index as usize];
            place.number = place.number.wrapping_add(1 << INDEX_BITS);
            place.value = Some(value);
            return Some(place.number);
        }
        if self.entries.len() >= self.most {
            return None;
        }
        // Indices start at one, because zero means "none".
        let index = self.entries.len() as u32 + 1;
        let number = (self.salt << INDEX_BITS) | index;
        self.entries.push(Entry { number, value: Some(value) });
        Some(number)
    }

    #[inline]
    fn index_of(&self, number: u32) -> Option<usize> {
        let index = ((number & INDEX_MASK) as usize).checked_sub(1)?;
        let place = self.entries.get(index)?;
        (place.number == number && place.value.is_some()).then_some(index)
    }

    /// Returns the value with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.entries[self.index_of(number)?].value.as_ref()
    }

    /// Returns the number of the value whose number ends in these 24 bits, for protocols that carry no more.
    pub fn number_ending_in(&self, low: u32) -> Option<u32> {
        let index = ((low & INDEX_MASK) as usize).checked_sub(1)?;
        let place = self.entries.get(index)?;
        (place.number & 0x00ff_ffff == low && place.value.is_some()).then_some(place.number)
    }

    /// Returns the value with this number, mutably.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.index_of(number)?;
        self.entries[index].value.as_mut()
    }

    /// Removes and returns a value; its number becomes invalid.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let index = self.index_of(number)?;
        self.free.push(index as u32);
        self.entries[index].value.take()
    }

    /// Iterates over the numbers and values.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().filter_map(|place| Some((place.number, place.value.as_ref()?)))
    }

    /// Iterates over the numbers and values, mutably.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.entries.iter_mut().filter_map(|place| Some((place.number, place.value.as_mut()?)))
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns whether the slab is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_removed_value_is_invalid() {
        let mut slab = Slab::new(2, 5);
        let one = slab.insert("one").expect("room");
        let two = slab.insert("two").expect("room");
        assert!(slab.insert("three").is_none());
        assert_eq!(slab.remove(one), Some("one"));
        assert_eq!(slab.get(one), None);
        let three = slab.insert("three").expect("room");
        assert_ne!(one, three);
        assert_eq!((slab.get(one), slab.get(three), slab.get(two)), (None, Some(&"three"), Some(&"two")));
        assert_eq!(slab.remove(one), None);
        for invented in [0, 1, u32::MAX, two ^ 1 << 31] {
            assert_eq!(slab.get(invented), None, "{invented:#x}");
        }
        assert_eq!((slab.len(), slab.iter().count()), (2, 2));
        assert_eq!(slab.number_ending_in(three & 0xff_ffff), Some(three));
        for stale in [one, three | 1 << 31, 0] {
            assert_eq!(slab.number_ending_in(stale), None, "{stale:#x}");
        }
    }
}
