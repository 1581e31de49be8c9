//! Words that several CPUs update at the same time.
//!
//! The steps on shared state are written once, over [`Word`]: the programs run them on words of maps, with the
//! instructions of BPF, and the tests search their interleavings.

/// An aligned 64-bit word that others update too. All three operations are atomic, and the two that write order
/// everything before and after them.
pub trait Word {
    /// What is there. A load from a place that a loaded word names comes after the load of that word; no other two loads have
    /// an order, unless they are of one word.
    fn load(&self) -> u64;

    /// Stores `new` if the word is `old`; what was there.
    fn compare_exchange(&self, old: u64, new: u64) -> u64;

    /// Adds, wrapping round; what was there.
    fn fetch_add(&self, amount: u64) -> u64;
}
