//! Single stations: M/M/1 and M/M/m.

/// Erlang's C: the probability that an arrival at `servers` servers with offered load `offered`
/// (arrival rate times service time) has to wait. 1 at or above saturation.
///
/// Computed by the stable recursion of Erlang's B, `B(k) = a B(k-1) / (k + a B(k-1))`; the direct sum
/// overflows beyond some 170 servers.
#[must_use]
pub fn erlang_c(servers: u32, offered: f64) -> f64 {
    let capacity = f64::from(servers);
    if offered >= capacity {
        return 1.0;
    }
    let blocking = (1..=servers).fold(1.0, |blocking, server| {
        let busy = offered * blocking;
        busy / (f64::from(server) + busy)
    });
    blocking / (1.0 - offered / capacity * (1.0 - blocking))
}

/// Mean response time of M/M/1 with this arrival rate and service time, in the unit of the service
/// time; `None` at or beyond saturation.
#[must_use]
pub fn mm1_response(rate: f64, service: f64) -> Option<f64> {
    let idle = 1.0 - rate * service;
    (idle > 0.0).then(|| service / idle)
}

/// Mean response time of M/M/m, in the unit of the service time; `None` at or beyond saturation.
#[must_use]
pub fn mmm_response(rate: f64, service: f64, servers: u32) -> Option<f64> {
    let offered = rate * service;
    let spare = f64::from(servers) - offered;
    (spare > 0.0).then(|| service + erlang_c(servers, offered) * service / spare)
}
