//! A sequence of requests with its labels interned: a request is the index of its path.

use std::collections::HashMap;
use std::hash::Hash;

use super::Partition;

/// Gives every distinct label an index, in order of first use.
#[derive(Clone, Debug)]
pub struct Interner<L> {
    indices: HashMap<L, u32>,
    labels: Vec<L>,
}

impl<L> Default for Interner<L> {
    fn default() -> Self {
        Self {
            indices: HashMap::new(),
            labels: Vec::new(),
        }
    }
}

impl<L: Hash + Eq + Clone> Interner<L> {
    /// The index of `label`.
    pub fn index(&mut self, label: &L) -> u32 {
        if let Some(index) = self.indices.get(label) {
            return *index;
        }
        let index = self.labels.len() as u32;
        self.indices.insert(label.clone(), index);
        self.labels.push(label.clone());
        index
    }

    /// The labels in the order of their indices.
    #[must_use]
    pub fn into_labels(self) -> Vec<L> {
        self.labels
    }
}

/// The requests, as indices of their paths, and the paths' labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    requests: Vec<u32>,
    labels: Vec<String>,
}

impl Sequence {
    /// From path indices and their labels. Indices without a label get their number as label.
    #[must_use]
    pub fn new(requests: Vec<u32>, mut labels: Vec<String>) -> Self {
        let paths = requests.iter().max().map_or(0, |largest| *largest as usize + 1);
        for index in labels.len()..paths {
            labels.push(index.to_string());
        }
        Self { requests, labels }
    }

    /// The requests as path indices.
    #[must_use]
    pub fn requests(&self) -> &[u32] {
        &self.requests
    }

    /// The label of a path.
    #[must_use]
    pub fn label(&self, path: u32) -> &str {
        &self.labels[path as usize]
    }

    /// Number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is no request at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Number of distinct paths known by label.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.labels.len()
    }
}

/// Counts distinct paths over contiguous stretches, each request in O(1): a path belongs to the
/// current stretch if it carries the stretch's number.
#[derive(Clone, Debug)]
pub struct Distinct {
    stamps: Vec<u32>,
    stretch: u32,
    partition: Partition,
}

impl Distinct {
    /// For sequences over `paths` paths.
    #[must_use]
    pub fn new(paths: usize) -> Self {
        Self {
            stamps: vec![0; paths],
            stretch: 1,
            partition: Partition {
                requests: 0,
                paths: 0,
            },
        }
    }

    /// Whether the current stretch has the path already.
    #[must_use]
    pub fn contains(&self, path: u32) -> bool {
        self.stamps[path as usize] == self.stretch
    }

    /// Adds a request to the current stretch.
    pub fn add(&mut self, path: u32) {
        let stamp = &mut self.stamps[path as usize];
        self.partition.paths += u64::from(*stamp != self.stretch);
        *stamp = self.stretch;
        self.partition.requests += 1;
    }

    /// The current stretch so far.
    #[must_use]
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// Ends the stretch and returns it.
    pub fn finish(&mut self) -> Partition {
        if self.stretch == u32::MAX {
            self.stamps.fill(0);
            self.stretch = 0;
        }
        self.stretch += 1;
        std::mem::replace(
            &mut self.partition,
            Partition {
                requests: 0,
                paths: 0,
            },
        )
    }
}
