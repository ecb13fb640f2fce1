//! Service categories and weights: which circuit of a port sends the next cell.
//!
//! Categories       CBR before VBR before UBR: a cell of a category is sent only if no circuit of a category
//!                  before it may send. (TM 4.1 §2 defines the categories, and leaves the order to the
//!                  switch.) Shape or police CBR and VBR, or they can starve UBR.
//! Weights          within a category, circuits share slots by self-clocked fair queueing (Golestani 1994):
//!                  a cell gets the tag v + 1/weight, where v is the tag of the cell that was sent last,
//!                  and the lowest tag goes first. With equal weights this is round robin per cell.
//! Order            among equal tags, the circuit that joined first goes first.
//! Range            tags start from 0 again whenever a category has no circuit. They cannot overflow: a
//!                  line of 10 Gbit/s would have to be busy for more than a year without a pause.

use alloc::collections::VecDeque;

/// The largest weight of a circuit.
pub const WEIGHT_MAX: u16 = 1000;
/// The increment of a tag with weight 1.
const STEP: u64 = 1 << 14;

/// The service category of a circuit, in order of precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Category {
    /// Constant bit rate.
    Cbr,
    /// Variable bit rate.
    Vbr,
    /// Unspecified bit rate.
    #[default]
    Ubr,
}

impl Category {
    /// All categories, in order of precedence.
    pub const ALL: [Category; 3] = [Category::Cbr, Category::Vbr, Category::Ubr];

    /// Returns the word for this category in configurations.
    pub const fn word(self) -> &'static str {
        match self {
            Category::Cbr => "cbr",
            Category::Vbr => "vbr",
            Category::Ubr => "ubr",
        }
    }

    /// Parses the word that [`Category::word`] returns.
    pub fn of(word: &str) -> Option<Category> {
        Category::ALL.into_iter().find(|category| category.word() == word)
    }
}

/// How a circuit is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// Its category.
    pub category: Category,
    /// Its weight within the category, 1 to [`WEIGHT_MAX`]; values outside are limited to this range.
    pub weight: u16,
}

impl Default for Service {
    fn default() -> Service {
        Service::UBR
    }
}

impl Service {
    /// UBR with weight 1.
    pub const UBR: Service = Service { category: Category::Ubr, weight: 1 };

    fn step(self) -> u64 {
        STEP / u64::from(self.weight.clamp(1, WEIGHT_MAX))
    }
}

/// The circuits of one category that may send.
#[derive(Default)]
struct Class {
    /// Tags and circuits, by tag.
    ring: VecDeque<(u64, u32)>,
    /// The tag of the cell that was sent last.
    sent: u64,
}

/// The circuits of a port that may send, in order.
#[derive(Default)]
pub(crate) struct ServiceRing {
    classes: [Class; Category::ALL.len()],
    len: usize,
}

impl ServiceRing {
    /// Returns the number of circuits.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no circuit may send.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the circuit that sends next.
    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        self.classes.iter().find_map(|class| class.ring.front()).map(|(_, circuit)| *circuit)
    }

    /// Adds a circuit that is not in the ring.
    #[inline]
    pub(crate) fn push(&mut self, circuit: u32, service: Service) {
        let class = &mut self.classes[service.category as usize];
        if class.ring.is_empty() {
            class.sent = 0;
        }
        let tag = class.sent + service.step();
        // With equal weights, this is the end of the ring.
        let place = class.ring.iter().rposition(|(other, _)| *other <= tag).map_or(0, |last| last + 1);
        class.ring.insert(place, (tag, circuit));
        self.len += 1;
    }

    /// Removes the circuit that sends next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let class = self.classes.iter_mut().find(|class| !class.ring.is_empty())?;
        let (tag, circuit) = class.ring.pop_front()?;
        class.sent = tag;
        self.len -= 1;
        Some(circuit)
    }

    /// Removes a circuit.
    pub(crate) fn remove(&mut self, circuit: u32) {
        for class in &mut self.classes {
            class.ring.retain(|(_, other)| *other != circuit);
        }
        self.len = self.classes.iter().map(|class| class.ring.len()).sum();
    }

    /// Returns the circuits of each category, in order.
    pub(crate) fn classes(&self) -> impl Iterator<Item = impl Iterator<Item = u32> + Clone> {
        self.classes.iter().map(|class| class.ring.iter().map(|(_, circuit)| *circuit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Returns how many of `slots` each circuit gets if all have cells all the time.
    fn shares(services: &[Service], slots: usize) -> Vec<usize> {
        let (mut ring, mut shares) = (ServiceRing::default(), alloc::vec![0; services.len()]);
        for (circuit, service) in services.iter().enumerate() {
            ring.push(circuit as u32, *service);
        }
        for _ in 0..slots {
            let circuit = ring.pop().expect("all have cells") as usize;
            shares[circuit] += 1;
            ring.push(circuit as u32, services[circuit]);
        }
        shares
    }

    fn ubr(weight: u16) -> Service {
        Service { weight, ..Service::default() }
    }

    #[test]
    fn circuits_of_a_category_share_slots_by_weight() {
        assert_eq!(shares(&[ubr(1), ubr(1), ubr(1)], 300), [100, 100, 100]);
        assert_eq!(shares(&[ubr(1), ubr(2), ubr(5)], 800), [100, 200, 500]);
        // A weight is bounded by its type and by the limit.
        assert_eq!(shares(&[ubr(0), ubr(1)], 100), [50, 50]);
        assert_eq!(shares(&[ubr(u16::MAX), ubr(1)], 2), shares(&[ubr(WEIGHT_MAX), ubr(1)], 2));
    }

    #[test]
    fn a_category_is_served_only_if_none_before_it_may_send() {
        let of = |category| Service { category, weight: 1 };
        let services = [of(Category::Ubr), of(Category::Cbr), of(Category::Vbr), of(Category::Cbr)];
        assert_eq!(shares(&services, 100), [0, 50, 0, 50]);
        let mut ring = ServiceRing::default();
        for (circuit, service) in services.iter().enumerate() {
            ring.push(circuit as u32, *service);
        }
        ring.remove(3);
        assert_eq!((ring.len(), ring.front()), (3, Some(1)));
        let order: Vec<u32> = core::iter::from_fn(|| ring.pop()).collect();
        assert_eq!(order, [1, 2, 0]);
    }

    /// A circuit that was idle gets no slots for the time in which it had no cells.
    #[test]
    fn an_idle_circuit_saves_nothing_up() {
        let mut ring = ServiceRing::default();
        ring.push(0, ubr(1));
        for _ in 0..1000 {
            let circuit = ring.pop().expect("it has cells");
            ring.push(circuit, ubr(1));
        }
        ring.push(1, ubr(1));
        let mut order = Vec::new();
        for _ in 0..6 {
            let circuit = ring.pop().expect("both have cells");
            order.push(circuit);
            ring.push(circuit, ubr(1));
        }
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn words_name_categories() {
        for category in Category::ALL {
            assert_eq!(Category::of(category.word()), Some(category));
        }
        assert_eq!(Category::of("abr"), None);
    }
}
