//! Graphs.

use super::{driver, get, list, put, put_if};
use crate::model::{Action, Grid, HostFunction, KernelWork, LeftMemory, Model};
use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUgraphExecUpdateResultInfo, CUresult as Code};
use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::Arc;

/// Of `CUgraphExecUpdateResult`.
const TOPOLOGY_CHANGED: u32 = 2;
/// Of `CUuserObject_flags`, which must be given.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// Of `CUgraphInstantiate_flags`.
const AUTO_FREE_ON_LAUNCH: c_ulonglong = 1;
/// Of `CUuserObjectRetain_flags`.
const MOVE: c_uint = 1;

impl Model {
    fn kernel_of_node(&mut self, params: *const CUDA_KERNEL_NODE_PARAMS) -> Result<KernelWork, Code> {
        let params = get(params)?;
        if !params.extra.is_null() {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        let grid = Grid {
            programs: [params.gridDimX, params.gridDimY, params.gridDimZ],
            threads: [params.blockDimX, params.blockDimY, params.blockDimZ],
            shared_bytes: params.sharedMemBytes,
        };
        // SAFETY: callers give a pointer for each parameter.
        unsafe { self.kernel(params.func.expose_provenance(), grid, params.kernelParams.cast_const()) }
    }
}

driver! {
    Driver fn cuGraphCreate(model, note, graph: *mut usize, flags: c_uint) {
        if flags != 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let created = model.create_graph();
        put(graph, created)
    }

    Context fn cuUserObjectCreate(
        model,
        note,
        object: *mut usize,
        data: *mut c_void,
        destroy: Option<HostFunction>,
        references: c_uint,
        flags: c_uint,
    ) {
        let destroy = destroy.ok_or(Code::CUDA_ERROR_INVALID_VALUE)?;
        if flags != NO_DESTRUCTOR_SYNC || references == 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let created = model.create_object(destroy, data.expose_provenance(), references);
        put(object, created)
    }

    Context fn cuGraphRetainUserObject(model, note, graph: usize, object: usize, count: c_uint, flags: c_uint) {
        if count != 1 || flags > MOVE {
            model.violate("the model has graphs that keep an object once");
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        model.keep_object(graph, object, flags == MOVE)
    }

    Driver fn cuGraphDestroy(model, note, graph: usize) {
        model.destroy_graph(graph)
    }

    Context fn cuGraphAddKernelNode_v2(
        model,
        note,
        node: *mut usize,
        graph: usize,
        after: *const usize,
        count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) {
        let after = list(after, count)?;
        let kernel = model.kernel_of_node(params)?;
        note.name("name", &kernel.function.entry);
        let added = model.add_graph_node(graph, &after, Action::Kernel(Arc::new(kernel)))?;
        put(node, added)
    }

    Context fn cuGraphAddEmptyNode(model, note, node: *mut usize, graph: usize, after: *const usize, count: usize) {
        let after = list(after, count)?;
        let added = model.add_graph_node(graph, &after, Action::Marker)?;
        put(node, added)
    }

    Driver fn cuGraphGetNodes(model, note, graph: usize, nodes: *mut usize, count: *mut usize) {
        let found = model.nodes(graph)?;
        if nodes.is_null() {
            return put(count, found.len());
        }
        let places = get(count)?;
        for index in 0..places {
            // Places that are left over are told nothing.
            put(nodes.wrapping_add(index), found.get(index).copied().unwrap_or(0))?;
        }
        put(count, found.len().min(places))
    }

    Driver fn cuGraphNodeGetType(model, note, node: usize, kind: *mut u32) {
        // Of `CUgraphNodeType`.
        let number = match model.node(node)? {
            Action::Kernel(_) => 0,
            Action::Copy { .. } => 1,
            Action::Fill { .. } => 2,
            Action::Call(..) => 3,
            Action::Marker | Action::Keep(_) => 5,
            Action::Born(_) => 10,
            Action::Dies(_) => 11,
        };
        put(kind, number)
    }

    Context fn cuGraphInstantiateWithFlags(model, note, exec: *mut usize, graph: usize, flags: c_ulonglong) {
        // Uploads, and priorities of nodes, change nothing here.
        let known = AUTO_FREE_ON_LAUNCH | 2 | 8;
        if flags & !known != 0 {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        let left = if flags & AUTO_FREE_ON_LAUNCH != 0 { LeftMemory::IsFreed } else { LeftMemory::Stays };
        let made = model.instantiate(graph, left)?;
        note.number("nodes", model.nodes(graph)?.len() as u64);
        put(exec, made)
    }

    Context fn cuGraphUpload(model, note, exec: usize, stream: usize) {
        note.stream(stream);
        model.check_exec(exec)?;
        model.enqueue(note.number, stream, Action::Marker).map(drop)
    }

    Context fn cuGraphLaunch(model, note, exec: usize, stream: usize) {
        note.stream(stream);
        model.launch_graph(note.number, exec, stream)
    }

    Driver fn cuGraphExecDestroy(model, note, exec: usize) {
        model.destroy_exec(exec)
    }

    Context fn cuGraphExecKernelNodeSetParams_v2(
        model,
        note,
        exec: usize,
        node: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) {
        let kernel = model.kernel_of_node(params)?;
        model.set_exec_kernel(exec, node, kernel)
    }

    Context fn cuGraphExecUpdate_v2(
        model,
        note,
        exec: usize,
        graph: usize,
        info: *mut CUgraphExecUpdateResultInfo,
    ) {
        let updated = model.update_exec(exec, graph);
        // The first field says what is wrong; zero is nothing.
        put_if(info.cast::<u32>(), if updated.is_ok() { 0 } else { TOPOLOGY_CHANGED });
        updated
    }
}
