//! Graphs: operations with an order, and what can be launched of them.

use super::capture::Target;
use super::work::Point;
use super::{Action, Code, HostFunction, KernelWork, Model, Outcome, UserObject};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// An operation of a graph, and the nodes that it comes after.
#[derive(Clone)]
struct Node {
    handle: usize,
    action: Action,
    after: Vec<usize>,
}

/// A graph. A node comes after nodes that were added before it.
#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    objects: Vec<Arc<UserObject>>,
}

/// What a launch does with memory that the launch before it has allocated and nobody has freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftMemory {
    /// It allocates it again, which is wrong.
    Stays,
    /// It frees it first.
    IsFreed,
}

/// A graph that can be launched.
pub(super) struct Exec {
    nodes: Vec<Node>,
    left: LeftMemory,
    objects: Vec<Arc<UserObject>>,
    /// The end of the last launch, which the next one follows.
    last: Option<Arc<Point>>,
}

impl Model {
    pub(crate) fn create_graph(&mut self) -> usize {
        let handle = self.new_handle();
        self.graphs.insert(handle, Graph::default());
        handle
    }

    pub(crate) fn destroy_graph(&mut self, handle: usize) -> Outcome {
        self.graph(handle)?;
        self.graphs.remove(&handle);
        self.gone.insert(handle);
        Ok(())
    }

    fn graph(&mut self, handle: usize) -> Result<&mut Graph, Code> {
        if !self.graphs.contains_key(&handle) {
            return Err(self.no_handle("graph", handle));
        }
        self.graphs.get_mut(&handle).ok_or(Code::CUDA_ERROR_INVALID_HANDLE)
    }

    fn exec(&mut self, handle: usize) -> Result<&mut Exec, Code> {
        if !self.execs.contains_key(&handle) {
            return Err(self.no_handle("instantiated graph", handle));
        }
        self.execs.get_mut(&handle).ok_or(Code::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Adds a node; gives its place.
    pub(super) fn add_to_graph(&mut self, graph: usize, after: Vec<usize>, action: Action) -> Result<usize, Code> {
        let handle = self.new_handle();
        let graph = self.graph(graph)?;
        graph.nodes.push(Node { handle, action, after });
        Ok(graph.nodes.len() - 1)
    }

    /// Adds a node after nodes with these handles; gives its own.
    pub(crate) fn add_graph_node(&mut self, graph: usize, after: &[usize], action: Action) -> Result<usize, Code> {
        let after = after.iter().map(|node| self.node_index(graph, *node)).collect::<Result<Vec<_>, _>>()?;
        let node = self.add_to_graph(graph, after, action)?;
        Ok(self.node_handle(graph, node))
    }

    pub(super) fn node_handle(&self, graph: usize, node: usize) -> usize {
        self.graphs.get(&graph).and_then(|graph| graph.nodes.get(node)).map_or(0, |node| node.handle)
    }

    pub(super) fn node_index(&mut self, graph: usize, handle: usize) -> Result<usize, Code> {
        let found = self.graph(graph)?.nodes.iter().position(|node| node.handle == handle);
        found.ok_or(Code::CUDA_ERROR_INVALID_VALUE)
    }

    /// The handles of a graph's nodes.
    pub(crate) fn nodes(&mut self, graph: usize) -> Result<Vec<usize>, Code> {
        Ok(self.graph(graph)?.nodes.iter().map(|node| node.handle).collect())
    }

    /// What a node does.
    pub(crate) fn node(&mut self, handle: usize) -> Result<Action, Code> {
        let mut nodes = self.graphs.values().flat_map(|graph| &graph.nodes);
        let found = nodes.find(|node| node.handle == handle).map(|node| node.action.clone());
        found.ok_or(Code::CUDA_ERROR_INVALID_VALUE)
    }

    /// These nodes and all that come before them.
    pub(super) fn nodes_before(&self, graph: usize, nodes: &[usize]) -> BTreeSet<usize> {
        let (mut found, mut left) = (BTreeSet::new(), nodes.to_vec());
        while let Some(node) = left.pop() {
            if found.insert(node) {
                left.extend(self.graphs.get(&graph).into_iter().flat_map(|graph| &graph.nodes[node].after));
            }
        }
        found
    }

    /// Makes a graph that can be launched of what a graph is now.
    pub(crate) fn instantiate(&mut self, graph: usize, left: LeftMemory) -> Result<usize, Code> {
        self.refuse_prohibited()?;
        let graph = self.graph(graph)?;
        let (nodes, objects) = (graph.nodes.clone(), graph.objects.clone());
        let handle = self.new_handle();
        self.execs.insert(handle, Exec { nodes, left, objects, last: None });
        Ok(handle)
    }

    pub(crate) fn destroy_exec(&mut self, handle: usize) -> Outcome {
        self.refuse_prohibited()?;
        self.exec(handle)?;
        self.execs.remove(&handle);
        self.gone.insert(handle);
        Ok(())
    }

    /// Makes an object that graphs can keep, with so many references.
    pub(crate) fn create_object(&mut self, destroy: HostFunction, data: usize, references: u32) -> usize {
        let handle = self.new_handle();
        self.objects.insert(handle, (Arc::new(UserObject { destroy, data }), references));
        handle
    }

    /// Lets a graph keep an object, for which one of its maker's references may be given up.
    pub(crate) fn keep_object(&mut self, graph: usize, object: usize, moves: bool) -> Outcome {
        self.graph(graph)?;
        let (kept, references) = self.objects.get_mut(&object).ok_or(Code::CUDA_ERROR_INVALID_HANDLE)?;
        let kept = kept.clone();
        *references -= u32::from(moves);
        if *references == 0 {
            self.objects.remove(&object);
        }
        self.graph(graph)?.objects.push(kept);
        Ok(())
    }

    /// Refuses an instantiated graph that does not exist.
    pub(crate) fn check_exec(&mut self, handle: usize) -> Outcome {
        self.exec(handle).map(drop)
    }

    /// Gives a node of an instantiated graph other arguments.
    pub(crate) fn set_exec_kernel(&mut self, exec: usize, node: usize, kernel: KernelWork) -> Outcome {
        let node = self.exec(exec)?.nodes.iter_mut().find(|known| known.handle == node);
        match node.map(|node| &mut node.action) {
            Some(Action::Kernel(old)) if old.function.context == kernel.function.context => {
                *old = Arc::new(kernel);
                Ok(())
            }
            Some(_) | None => Err(Code::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Gives an instantiated graph the arguments of a graph like the one that it was made of.
    pub(crate) fn update_exec(&mut self, exec: usize, graph: usize) -> Outcome {
        let nodes = self.graph(graph)?.nodes.clone();
        let exec = self.exec(exec)?;
        let is_like = |(old, new): (&Node, &Node)| {
            old.after == new.after && std::mem::discriminant(&old.action) == std::mem::discriminant(&new.action)
        };
        if exec.nodes.len() != nodes.len() || !exec.nodes.iter().zip(&nodes).all(is_like) {
            return Err(Code::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        }
        for (old, new) in exec.nodes.iter_mut().zip(nodes) {
            old.action = new.action;
        }
        Ok(())
    }

    /// Gives a stream a graph.
    pub(crate) fn launch_graph(&mut self, call: u64, handle: usize, stream: usize) -> Outcome {
        let nodes = self.exec(handle)?.nodes.clone();
        let own = match self.target(stream)? {
            Target::Stream(own) => own,
            Target::Capture(capture) => return self.capture_graph(capture, stream, &nodes),
        };
        if self.execs[&handle].left == LeftMemory::IsFreed {
            self.free_left(call, own, handle, &nodes);
        }
        let mut before = self.tails(own);
        before.extend(self.execs[&handle].last.clone());
        let mut points: Vec<Arc<Point>> = Vec::new();
        // The end of each line, and the node that is there.
        let mut ends: HashMap<usize, usize> = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            let mut after = before.clone();
            after.extend(node.after.iter().map(|node| points[*node].clone()));
            let continued = ends.iter().find(|(_, end)| node.after.contains(end)).map(|(line, _)| *line);
            let line = match continued {
                Some(line) => line,
                None if index == 0 => self.streams[&own].line,
                None => self.work.new_line(),
            };
            ends.insert(line, index);
            let point = self.work.submit(call, line, &after, node.action.clone());
            self.live_by_node(&node.action, &point);
            points.push(point);
        }
        before.extend(points);
        let kept = self.execs[&handle].objects.clone();
        let end = self.enqueue_after(call, own, &before, Action::Keep(kept));
        let line = self.streams[&own].line;
        ends.keys().filter(|used| **used != line).for_each(|used| self.work.free_line(*used));
        self.exec(handle)?.last = Some(end);
        self.let_time_pass();
        Ok(())
    }

    /// Frees what the last launch has left, in the order of the stream.
    fn free_left(&mut self, call: u64, own: usize, handle: usize, nodes: &[Node]) {
        let mut after = self.tails(own);
        after.extend(self.execs[&handle].last.clone());
        for node in nodes {
            if let Action::Born(base) = node.action
                && self.space.is_alive(base)
            {
                let freed = Action::Dies(base);
                let point = self.enqueue_after(call, own, &after, freed.clone());
                self.live_by_node(&freed, &point);
            }
        }
    }

    /// A graph that is launched into a captured stream becomes part of the new graph.
    fn capture_graph(&mut self, capture: usize, stream: usize, nodes: &[Node]) -> Outcome {
        let before = self.last_nodes(capture, stream)?;
        let graph = self.capture_info(stream)?.ok_or(Code::CUDA_ERROR_ILLEGAL_STATE)?.graph;
        let mut added = Vec::new();
        for node in nodes {
            let own = node.after.iter().map(|node| added[*node]);
            let after = before.iter().copied().chain(own).collect();
            added.push(self.add_to_graph(graph, after, node.action.clone())?);
        }
        let handles: Vec<usize> = added.iter().map(|node| self.node_handle(graph, *node)).collect();
        if handles.is_empty() { Ok(()) } else { self.set_last_nodes(stream, &handles, false) }
    }
}
