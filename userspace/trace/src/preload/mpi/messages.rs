//! Point-to-point messages.
#![allow(non_snake_case, reason = "the names are MPI's")]

use super::abi::bytes;
use super::call::Spare;
use super::define::{c_type, define, passed, value};

define! {
    MPI_Send mpi_send_ mpi_send_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm)
        => |call, _spare| call.sent(comm, peer, tag, bytes(count, datatype), 0);
    MPI_Ssend mpi_ssend_ mpi_ssend_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm)
        => |call, _spare| call.sent(comm, peer, tag, bytes(count, datatype), 0);
    MPI_Bsend mpi_bsend_ mpi_bsend_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm)
        => |call, _spare| call.sent(comm, peer, tag, bytes(count, datatype), 0);
    MPI_Rsend mpi_rsend_ mpi_rsend_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm)
        => |call, _spare| call.sent(comm, peer, tag, bytes(count, datatype), 0);
    MPI_Isend mpi_isend_ mpi_isend_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm, request: requests)
        => |call, _spare| call.sent(comm, peer, tag, bytes(count, datatype), request.get());
    MPI_Issend mpi_issend_ mpi_issend_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm, request: requests)
        => |call, _spare| call.sent(comm, peer, tag, bytes(count, datatype), request.get());
    MPI_Ibsend mpi_ibsend_ mpi_ibsend_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm, request: requests)
        => |call, _spare| call.sent(comm, peer, tag, bytes(count, datatype), request.get());
    MPI_Irsend mpi_irsend_ mpi_irsend_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm, request: requests)
        => |call, _spare| call.sent(comm, peer, tag, bytes(count, datatype), request.get());
    MPI_Recv mpi_recv_ mpi_recv_f08_
        (data: buffer, count: count, datatype: datatype, source: count, tag: count, comm: comm, status: status)
        before |call, language| {
            call.receives(comm, source, tag);
            Spare::none().statuses(language, call.abi, status, 1)
        };
        => |call, spare| call.received(comm, source, tag, spare);
    MPI_Irecv mpi_irecv_ mpi_irecv_f08_
        (data: buffer, count: count, datatype: datatype, source: count, tag: count, comm: comm, request: requests)
        => |call, _spare| call.posted(comm, request.get());
    MPI_Sendrecv mpi_sendrecv_ mpi_sendrecv_f08_
        (
            data: buffer, count: count, datatype: datatype, peer: count, tag: count,
            room: buffer, room_count: count, room_type: datatype, source: count, room_tag: count,
            comm: comm, status: status
        )
        before |call, language| {
            call.sent(comm, peer, tag, bytes(count, datatype), 0);
            call.receives(comm, source, room_tag);
            Spare::none().statuses(language, call.abi, status, 1)
        };
        => |call, spare| call.received(comm, source, room_tag, spare);
    MPI_Sendrecv_replace mpi_sendrecv_replace_ mpi_sendrecv_replace_f08_
        (
            data: buffer, count: count, datatype: datatype, peer: count, tag: count,
            source: count, room_tag: count, comm: comm, status: status
        )
        before |call, language| {
            call.sent(comm, peer, tag, bytes(count, datatype), 0);
            call.receives(comm, source, room_tag);
            Spare::none().statuses(language, call.abi, status, 1)
        };
        => |call, spare| call.received(comm, source, room_tag, spare);
    MPI_Mprobe mpi_mprobe_ mpi_mprobe_f08_
        (source: count, tag: count, comm: comm, message: message, status: buffer)
        => |call, _spare| call.matched(comm, message.get());
    MPI_Improbe mpi_improbe_ mpi_improbe_f08_
        (source: count, tag: count, comm: comm, flag: result, message: message, status: buffer)
        => |call, _spare| {
            // SAFETY: a call that succeeded has set the flag.
            if unsafe { flag.cast::<std::ffi::c_int>().read() } != 0 {
                call.matched(comm, message.get());
            }
        };
    MPI_Mrecv mpi_mrecv_ mpi_mrecv_f08_
        (data: buffer, count: count, datatype: datatype, message: message, status: status)
        before |call, language| {
            Spare::none().requests(message, 1).statuses(language, call.abi, status, 1)
        };
        => |call, spare| call.matched_received(spare);
    MPI_Imrecv mpi_imrecv_ mpi_imrecv_f08_
        (data: buffer, count: count, datatype: datatype, message: message, request: requests)
        before |call, language| Spare::none().requests(message, 1);
        => |call, spare| call.matched_posted(spare, request.get());
    // A probe finds nothing out that its receive does not; its time is left out like that of any call.
    MPI_Probe mpi_probe_ mpi_probe_f08_
        (source: count, tag: count, comm: comm, status: buffer)
        => |_call, _spare| ();
    MPI_Iprobe mpi_iprobe_ mpi_iprobe_f08_
        (source: count, tag: count, comm: comm, flag: result, status: buffer)
        => |_call, _spare| ();
    MPI_Send_init mpi_send_init_ mpi_send_init_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm, request: requests)
        => |call, _spare| call.prepared(comm, peer, tag, bytes(count, datatype), request.get());
    MPI_Ssend_init mpi_ssend_init_ mpi_ssend_init_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm, request: requests)
        => |call, _spare| call.prepared(comm, peer, tag, bytes(count, datatype), request.get());
    MPI_Bsend_init mpi_bsend_init_ mpi_bsend_init_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm, request: requests)
        => |call, _spare| call.prepared(comm, peer, tag, bytes(count, datatype), request.get());
    MPI_Rsend_init mpi_rsend_init_ mpi_rsend_init_f08_
        (data: buffer, count: count, datatype: datatype, peer: count, tag: count, comm: comm, request: requests)
        => |call, _spare| call.prepared(comm, peer, tag, bytes(count, datatype), request.get());
    MPI_Recv_init mpi_recv_init_ mpi_recv_init_f08_
        (data: buffer, count: count, datatype: datatype, source: count, tag: count, comm: comm, request: requests)
        => |call, _spare| call.receive_prepared(comm, request.get());
    MPI_Start mpi_start_ mpi_start_f08_
        (request: requests)
        before |call, language| Spare::none().requests(request, 1);
        => |call, spare| call.started(spare.kept());
    MPI_Startall mpi_startall_ mpi_startall_f08_
        (count: count, requests: requests)
        before |call, language| Spare::none().requests(requests, count);
        => |call, spare| call.started(spare.kept());
}
