//! How a server's fates hang together ([`perturb_common::ties`]).

use perturb_common::{
    fate::Chance,
    ties::{CORRUPT, DUPLICATE, LOSS, REORDER, TIE_BURST, TIE_DRIFT, TIE_STATES, Ties, rest},
};

use super::{chance, ticks};
use crate::model::{Drift, Server};

/// `None` if each packet's fate is its own.
pub(super) fn of(server: &Server) -> Option<Ties> {
    let mut ties = Ties::NONE;
    let correlated = [
        (LOSS, server.loss.correlation),
        (DUPLICATE, server.duplicate.correlation),
        (CORRUPT, server.corrupt.correlation),
    ];
    for (which, correlation) in correlated {
        if let Some(of) = ties.correlation.get_mut(which) {
            *of = chance(correlation);
        }
    }
    if let Some(states) = server.loss.states {
        ties.states = [states.p13, states.p31, states.p32, states.p23, states.p14].map(chance);
        ties.kinds |= TIE_STATES;
    }
    if let Some(reorder) = server.reorder {
        ties.reorder = chance(reorder.chance.probability);
        ties.correlation[REORDER] = chance(reorder.chance.correlation);
        ties.gap = reorder.gap;
    }
    match server.jitter.as_ref().and_then(|jitter| jitter.drift) {
        Some(Drift::Packets(correlation)) => {
            let Chance(rho) = chance(correlation);
            (ties.rho, ties.spread) = (rho, rest(rho));
            ties.kinds |= TIE_DRIFT;
        }
        Some(Drift::Time(constant)) => {
            ties.constant = ticks(constant).0;
            ties.kinds |= TIE_DRIFT;
        }
        None => {}
    }
    if ties == Ties::NONE {
        return None;
    }
    if server.loss.burst.is_some() {
        ties.kinds |= TIE_BURST;
    }
    Some(ties)
}
