//! The collectives, written as the operations of each rank.

use super::program::{Builder, Op};

impl Builder {
    fn exchange(&mut self, to: u32, from: u32, size: u32) {
        let receive = self.irecv(from);
        let send = self.push(Op::Isend { to, size });
        self.wait(send);
        self.wait(receive);
    }

    pub(super) fn alltoall_a(&mut self, rank: u32, nodes: u32) {
        for partner in partners(rank, nodes) {
            self.exchange(partner, partner, 0);
        }
    }

    pub(super) fn alltoall_b(&mut self, rank: u32, nodes: u32) {
        let receives: Vec<u32> = partners(rank, nodes).map(|partner| self.irecv(partner)).collect();
        for partner in partners(rank, nodes) {
            let send = self.isend(partner);
            self.wait(send);
        }
        for receive in receives {
            self.wait(receive);
        }
    }

    pub(super) fn ring(&mut self, rank: u32, nodes: u32) {
        for _ in 1..nodes {
            self.exchange((rank + 1) % nodes, (rank + nodes - 1) % nodes, 0);
        }
    }

    pub(super) fn recursive_doubling(&mut self, rank: u32, steps: u32) {
        for step in 0..steps {
            let partner = rank ^ (1 << step);
            self.exchange(partner, partner, step);
        }
    }

    pub(super) fn broadcast(&mut self, rank: u32, root: u32, nodes: u32) {
        let relative = (rank + nodes - root) % nodes;
        // The lowest set bit says in which round this rank is reached.
        let below = if relative == 0 {
            nodes.next_power_of_two()
        } else {
            let bit = relative & relative.wrapping_neg();
            let receive = self.irecv((relative - bit + root) % nodes);
            self.wait(receive);
            bit
        };
        let mut bit = below >> 1;
        while bit > 0 {
            if relative + bit < nodes {
                let send = self.isend((relative + bit + root) % nodes);
                self.wait(send);
            }
            bit >>= 1;
        }
    }

    pub(super) fn gather(&mut self, rank: u32, root: u32, nodes: u32) {
        if rank == root {
            let receives: Vec<u32> = (0..nodes)
                .filter(|from| *from != root)
                .map(|from| self.irecv(from))
                .collect();
            for receive in receives {
                self.wait(receive);
            }
        } else {
            let send = self.isend(root);
            self.wait(send);
        }
    }
}

/// Exchange partners of fig. 13, `rank xor i` for rising `i`; those beyond the last rank are left out.
fn partners(rank: u32, nodes: u32) -> impl Iterator<Item = u32> {
    (1..nodes.next_power_of_two())
        .map(move |step| rank ^ step)
        .filter(move |partner| *partner < nodes)
}
