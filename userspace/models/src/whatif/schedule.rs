//! Which group's next event is the earliest: a tournament tree over the groups. Changing one group's
//! time costs O(log groups), finding the earliest O(1); ties go to the group that stands first.

/// The tree; a leaf is a group's next time, an inner node the smaller of its children.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    leaves: usize,
    winners: Vec<u32>,
    times: Vec<f64>,
}

impl Schedule {
    /// For `groups` groups, none of which has anything to do.
    pub(crate) fn new(groups: usize) -> Self {
        let leaves = groups.next_power_of_two().max(1);
        let mut winners = vec![0; 2 * leaves];
        for (leaf, winner) in winners[leaves..].iter_mut().enumerate() {
            *winner = leaf as u32;
        }
        for node in (1..leaves).rev() {
            winners[node] = winners[2 * node];
        }
        Self {
            leaves,
            winners,
            times: vec![f64::INFINITY; leaves],
        }
    }

    /// Sets a group's next time; infinite for none.
    pub(crate) fn set(&mut self, group: u32, time: f64) {
        self.times[group as usize] = time;
        let mut node = (self.leaves + group as usize) / 2;
        while node > 0 {
            let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
            let winner = if self.times[right as usize] < self.times[left as usize] {
                right
            } else {
                left
            };
            self.winners[node] = winner;
            node /= 2;
        }
    }

    /// The group with the earliest time, if any has something to do.
    pub(crate) fn earliest(&self) -> Option<(u32, f64)> {
        let winner = self.winners[1];
        let time = self.times[winner as usize];
        time.is_finite().then_some((winner, time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_and_ties() {
        let mut schedule = Schedule::new(5);
        assert_eq!(schedule.earliest(), None);
        schedule.set(3, 2.0);
        schedule.set(1, 2.0);
        assert_eq!(schedule.earliest(), Some((1, 2.0)));
        schedule.set(4, 1.0);
        assert_eq!(schedule.earliest(), Some((4, 1.0)));
        schedule.set(4, f64::INFINITY);
        schedule.set(1, 3.0);
        assert_eq!(schedule.earliest(), Some((3, 2.0)));
        let mut single = Schedule::new(1);
        single.set(0, 7.0);
        assert_eq!(single.earliest(), Some((0, 7.0)));
    }
}
