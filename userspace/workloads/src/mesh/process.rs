//! What a program on the mesh can do.

use std::time::{Duration, Instant};

use super::{
    MeshError, Process, Traffic, left, swap,
    wire::{Kind, words_of},
};

/// The largest payload of one message: long Active Messages had 4 KB.
pub(crate) const LONGEST: usize = 4 << 10;

impl Process {
    /// This process' number.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// How many processes there are.
    pub(crate) fn size(&self) -> usize {
        self.links.len()
    }

    /// The other processes.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank(), self.size());
        (0..size).filter(move |peer| *peer != rank)
    }

    /// What it has sent so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Messages to each process so far.
    pub(crate) fn sent(&self) -> Vec<u64> {
        self.sent.clone()
    }

    /// The first words are those of [`gather`](Self::gather).
    fn place(&self, at: usize) -> usize {
        2 * self.size() + at
    }

    /// A word of its own.
    pub(crate) fn load(&self, at: usize) -> u64 {
        self.memory[self.place(at)]
    }

    /// Words of its own.
    pub(crate) fn loads(&self, at: usize, count: usize) -> Vec<u64> {
        (at..at + count).map(|at| self.load(at)).collect()
    }

    /// Sets a word of its own.
    pub(crate) fn store(&mut self, at: usize, value: u64) {
        let place = self.place(at);
        self.memory[place] = value;
    }

    /// Reads a word, and waits for it.
    pub(crate) fn read(&mut self, of: usize, at: usize) -> Result<u64, MeshError> {
        self.read_words(of, at, 1)
            .map(|words| words.first().copied().unwrap_or_default())
    }

    /// Reads words, and waits for them.
    pub(crate) fn read_words(&mut self, of: usize, at: usize, count: usize) -> Result<Vec<u64>, MeshError> {
        if of == self.rank() {
            return Ok(self.loads(at, count));
        }
        let (most, place) = (LONGEST / 8, self.place(at));
        let starts = (0..count).step_by(most);
        for start in starts.clone() {
            let words = (most.min(count - start) as u64).to_le_bytes();
            self.send(of, Kind::Read, place + start, &words)?;
        }
        let mut values = Vec::with_capacity(count);
        for _ in starts {
            values.extend(words_of(&self.wait(Kind::Value)?));
        }
        Ok(values)
    }

    /// Writes a word without waiting.
    pub(crate) fn write(&mut self, to: usize, at: usize, value: u64) -> Result<(), MeshError> {
        self.write_words(to, at, &[value])
    }

    /// Writes words without waiting.
    pub(crate) fn write_words(&mut self, to: usize, at: usize, values: &[u64]) -> Result<(), MeshError> {
        if to == self.rank() {
            for (index, value) in values.iter().enumerate() {
                self.store(at + index, *value);
            }
            return Ok(());
        }
        for (index, values) in values.chunks(LONGEST / 8).enumerate() {
            let payload: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let at = self.place(at + index * (LONGEST / 8));
            self.send(to, Kind::Write, at, &payload)?;
        }
        Ok(())
    }

    /// Puts `new` in the place of `old`, if that is what is there; whether it was.
    pub(crate) fn swap(&mut self, of: usize, at: usize, old: u64, new: u64) -> Result<bool, MeshError> {
        let place = self.place(at);
        if of == self.rank() {
            return Ok(swap(&mut self.memory[place], old, new) == old);
        }
        let operands = [old.to_le_bytes(), new.to_le_bytes()].concat();
        self.send(of, Kind::Swap, place, &operands)?;
        Ok(words_of(&self.wait(Kind::Previous)?).next() == Some(old))
    }

    /// Takes the lock at a word, which is 0 while it is free. Who fails tries again at once, as a test-and-set in a loop
    /// does: under contention these messages are the load.
    pub(crate) fn lock(&mut self, of: usize, at: usize) -> Result<(), MeshError> {
        while !self.swap(of, at, 0, 1)? {
            if of == self.rank() {
                // Waiting for a lock of its own takes no messages; a message gives it back.
                self.serve(None)?;
            } else {
                self.traffic.failed_locks += 1;
            }
        }
        Ok(())
    }

    /// Gives it back. What was written to the same process before is there by then.
    pub(crate) fn unlock(&mut self, of: usize, at: usize) -> Result<(), MeshError> {
        self.write(of, at, 0)
    }

    /// Sends something that the other program [takes in](Self::posted) itself.
    pub(crate) fn post(&mut self, to: usize, payload: &[u8]) -> Result<(), MeshError> {
        if to == self.rank() {
            self.posts.push_back((to, payload.to_vec()));
            return Ok(());
        }
        self.send(to, Kind::Post, 0, payload)
    }

    /// What was posted next and its sender; waits so long for it.
    pub(crate) fn posted(&mut self, patience: Duration) -> Result<Option<(usize, Vec<u8>)>, MeshError> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(post) = self.posts.pop_front() {
                return Ok(Some(post));
            }
            let left = left(deadline);
            if !self.serve(Some(left))? && left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// What is posted next, which surely comes.
    pub(crate) fn awaited(&mut self) -> Result<(usize, Vec<u8>), MeshError> {
        loop {
            if let Some(post) = self.posts.pop_front() {
                return Ok(post);
            }
            self.serve(None)?;
        }
    }

    /// The next payload of a kind, which comes as long as its sender lives, however long that computes.
    fn wait(&mut self, kind: Kind) -> Result<Vec<u8>, MeshError> {
        loop {
            if let Some(place) = self.kept.iter().position(|(kept, _)| *kept == kind)
                && let Some((_, payload)) = self.kept.remove(place)
            {
                return Ok(payload);
            }
            self.serve(None)?;
        }
    }

    /// Waits until all processes are here.
    pub(crate) fn barrier(&mut self) -> Result<(), MeshError> {
        self.traffic.barriers += 1;
        if self.rank() != 0 {
            self.send(0, Kind::Arrive, 0, &[])?;
            return self.wait(Kind::Release).map(|_| ());
        }
        for _ in 1..self.size() {
            self.wait(Kind::Arrive)?;
        }
        (1..self.size()).try_for_each(|peer| self.send(peer, Kind::Release, 0, &[]))
    }

    /// Waits until all that this process has written and posted has come.
    pub(crate) fn fence(&mut self) -> Result<(), MeshError> {
        for peer in self.others() {
            self.send(peer, Kind::Fence, 0, &[])?;
        }
        self.others()
            .try_for_each(|_| self.wait(Kind::Fenced).map(|_| ()))
    }

    /// Waits until all that anyone has written and posted has come.
    pub(crate) fn settle(&mut self) -> Result<(), MeshError> {
        self.fence()?;
        self.barrier()
    }

    /// A value of each process, for all of them.
    pub(crate) fn gather(&mut self, value: u64) -> Result<Vec<u64>, MeshError> {
        let first = self.gathered % 2 * self.size();
        self.gathered += 1;
        let own = first + self.rank();
        self.memory[own] = value;
        for peer in self.others() {
            self.send(peer, Kind::Write, own, &value.to_le_bytes())?;
        }
        self.settle()?;
        Ok(self.memory[first..first + self.size()].to_vec())
    }
}
