//! LoPC: contention for processors among active messages (Frank, Agarwal and Vernon, "LoPC: Modeling
//! Contention in Parallel Algorithms", PPoPP 1997).
//!
//! Every node runs a thread that works W cycles, sends a request to a random node and waits for the reply;
//! requests and replies are handled by the processors they reach, one at a time, and interrupt the
//! thread. With S_t the latency, S the handler's time, and Q, U the mean number and utilization of request
//! (q) and reply (y) handlers at a node, mean value analysis of the homogeneous case gives
//!
//! ```text
//! R   = R_w + 2 S_t + R_q + R_y
//! R_w = (W + S_q Q_q) / (1 - U_q)                        the thread, interrupted by requests
//! R_q = S_q (1 + Q_q) + S_y Q_y - (1 - c)(S_q U_q + S_y U_y)/2
//! R_y = S_y + S_q Q_q - (1 - c) S_q U_q / 2
//! Q   = R_x / R,  U = S_x / R                            Little, one cycle per node
//! ```
//!
//! with c = C^2 the squared coefficient of variation of the handlers: 0 constant, 1 exponential. The
//! contention for processors is C_r = R - (W + 2 S_t + S_q + S_y). The rule of thumb of the paper, about
//! one handler per cycle, follows for W near 0.
//!
//! Reading taken: LoGPC's overheads are split as its request-reply cycle has them: the thread sends
//! (W + o_s), the request handler receives and sends the reply (o_r + o_s), the reply handler receives (o_r).

/// One request-reply cycle, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cycle {
    /// W, the thread's own time per request, its sending included.
    pub work: f64,
    /// S_t, one way.
    pub latency: f64,
    /// S_q.
    pub request_handler: f64,
    /// S_y.
    pub reply_handler: f64,
    /// C^2 of the handlers: 0 for constant times, 1 for exponential ones.
    pub variation: f64,
}

impl Cycle {
    /// The cycle without contention.
    #[must_use]
    pub fn free(&self) -> f64 {
        self.work + 2.0 * self.latency + self.request_handler + self.reply_handler
    }

    /// The right-hand side of the equations for a guessed R; decreasing in R.
    fn response(&self, cycle: f64) -> f64 {
        let (request, reply) = (self.request_handler, self.reply_handler);
        let (used_q, used_y) = (request / cycle, reply / cycle);
        let residual = (1.0 - self.variation) / 2.0;
        // R_q and R_y are linear in each other through Q = R_x / R; solved directly.
        let base_q = request - residual * (request * used_q + reply * used_y);
        let base_y = reply - residual * request * used_q;
        // R_q = base_q + used_q R_q + used_y R_y,  R_y = base_y + used_q R_q
        let r_q = (base_q + used_y * base_y) / (1.0 - used_q - used_y * used_q);
        let r_y = base_y + used_q * r_q;
        let r_w = (self.work + request * (r_q / cycle)) / (1.0 - used_q);
        r_w + 2.0 * self.latency + r_q + r_y
    }

    /// C_r: what contention for processors adds to a cycle.
    #[must_use]
    pub fn contention(&self) -> f64 {
        let free = self.free();
        if self.request_handler + self.reply_handler <= 0.0 {
            return 0.0;
        }
        // The answer lies between the free cycle and one in which everything waits for everything; for
        // R near S_q the denominators vanish, so the lower end stays above it.
        let (mut low, mut high) = (free, 4.0 * free);
        for _ in 0..200 {
            let middle = f64::midpoint(low, high);
            let response = self.response(middle);
            if response > middle || response < 0.0 {
                low = middle;
            } else {
                high = middle;
            }
        }
        high - free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remap_of_table_4_waits_for_about_one_handler() {
        // Table 1, two arguments: o_s 15, o_r 122, L 21; the paper's C_r is 137.
        let cycle = Cycle {
            work: 15.0,
            latency: 21.0,
            request_handler: 137.0,
            reply_handler: 122.0,
            variation: 0.0,
        };
        assert_eq!(cycle.free(), 316.0);
        let contention = cycle.contention();
        assert!((contention - 137.0).abs() < 0.35 * 137.0, "{contention}");
        let exponential = Cycle {
            variation: 1.0,
            ..cycle
        };
        assert!(exponential.contention() > contention);
    }

    #[test]
    fn rare_requests_do_not_wait() {
        let cycle = Cycle {
            work: 1e9,
            latency: 21.0,
            request_handler: 137.0,
            reply_handler: 122.0,
            variation: 0.0,
        };
        // The thread is still interrupted once per cycle.
        assert!((cycle.contention() - 137.0).abs() < 1.0, "{}", cycle.contention());
        let idle = Cycle {
            work: 1.0,
            latency: 1.0,
            request_handler: 0.0,
            reply_handler: 0.0,
            variation: 0.0,
        };
        assert_eq!(idle.contention(), 0.0);
    }
}
