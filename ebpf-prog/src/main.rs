//! The kernel side: tc programs that classify packets, fold their paths, and move them to the hold
//! device until they depart.
//!
//! ```text
//! local sender ──► [perturb_egress @ X] ──clone──► hold device ──► [perturb_release] ──► X egress (tagged: passes)
//! remote peer ──► [perturb_ingress @ X] ─────────► hold device ──► [perturb_release] ──► X ingress (tagged: passes)
//! ```
//!
//! A packet that perturb does not emulate is answered with `TC_ACT_UNSPEC`: the next program or
//! filter sees it as if perturb were not there. Oldest kernel: 6.1 (bpf_skb_set_tstamp is 5.18,
//! bpf_loop 5.17, stamps that survive a redirect 5.18; 6.1 is the oldest that is tested).
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![expect(
    unreachable_pub,
    clippy::needless_pass_by_value,
    reason = "the classifier macro makes the programs public symbols and passes the context by value"
)]
#![expect(
    clippy::needless_borrows_for_generic_args,
    reason = "map keys passed by value would be copied onto the 512-byte stack"
)]

mod account;
mod atomic;
mod buffer;
mod capture;
mod cgroup;
mod classify;
mod collide;
mod ends;
mod fate;
mod flows;
mod fold;
mod framing;
mod grants;
mod hold;
mod instance;
mod lead;
mod maps;
mod memory;
mod network;
mod overhead;
mod packet;
mod queue;
mod release;
mod scratch;
mod sight;
mod ties;
mod timeline;
mod tunnel;

use aya_ebpf::{
    macros::{classifier, socket_filter},
    programs::{SkBuffContext, TcContext},
};
use perturb_common::abi::Direction;

/// At the interface's egress.
#[classifier]
pub fn perturb_egress(ctx: TcContext) -> i32 {
    capture::capture(&ctx, Direction::Egress)
}

/// At the interface's ingress.
#[classifier]
pub fn perturb_ingress(ctx: TcContext) -> i32 {
    capture::capture(&ctx, Direction::Ingress)
}

/// Where held packets come out: at the ingress of the hold device's far end, or of the splitter's.
#[classifier]
pub fn perturb_release(ctx: TcContext) -> i32 {
    release::release(&ctx)
}

/// At the egress of the fq hold device: stamps packets that `bpf_skb_set_tstamp` refuses.
#[classifier]
pub fn perturb_stamp(ctx: TcContext) -> i32 {
    hold::stamp(&ctx)
}

/// Which queue of the user pacer's TAP takes a packet: the kernel takes the remainder (`tun_ebpf_select_queue`).
#[socket_filter]
pub fn perturb_steer(ctx: SkBuffContext) -> i64 {
    hold::steer(&ctx)
}

/// At the far ends of hold devices, behind `perturb_release`: what comes here when that is gone, because the controller
/// was killed, must not enter the host's stack.
#[classifier]
pub fn perturb_discard(_ctx: TcContext) -> i32 {
    hold::DISCARD
}

/// At the egress of a tunnel to a host on another machine.
#[classifier]
pub fn perturb_sent(ctx: TcContext) -> i32 {
    ends::sent(&ctx)
}

/// At its ingress.
#[classifier]
pub fn perturb_received(ctx: TcContext) -> i32 {
    ends::received(&ctx)
}

/// Does nothing: what a program costs at all, for the benchmarks.
#[classifier]
pub fn perturb_idle(_ctx: TcContext) -> i32 {
    hold::PASS
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier admits no reachable panic, so none exists in a program that loads.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
