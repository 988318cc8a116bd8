//! Where control goes: what is known of a block before its jumps are gone.

use crate::source_range::SourceRange;
use crate::tree::{BodyStmt, Jump, LoopId, Stmt, VarId, WhileStmt, jumps};

/// Whether control reaches the end of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// On all paths.
    Falls,
    /// On some.
    Maybe,
    /// On none.
    Leaves,
}

/// How a block ends.
pub fn flow_of(stmts: &[Stmt]) -> Flow {
    let mut flow = Flow::Falls;
    for stmt in stmts {
        match stmt {
            Stmt::Jump(..) => return Flow::Leaves,
            Stmt::If(stmt) => match (flow_of(&stmt.then), flow_of(&stmt.otherwise)) {
                (Flow::Falls, Flow::Falls) => {}
                (Flow::Leaves, Flow::Leaves) => return Flow::Leaves,
                (Flow::Maybe | Flow::Leaves, _) | (_, Flow::Maybe | Flow::Leaves) => flow = Flow::Maybe,
            },
            Stmt::For(stmt) => {
                if first_beyond(&stmt.body, stmt.id).is_some() {
                    flow = Flow::Maybe;
                }
            }
            Stmt::While(stmt) => match while_flow(stmt) {
                Flow::Falls => {}
                Flow::Maybe => flow = Flow::Maybe,
                Flow::Leaves => return Flow::Leaves,
            },
            Stmt::Body(stmt) => match body_flow(stmt) {
                Flow::Falls | Flow::Maybe => {}
                Flow::Leaves => return Flow::Leaves,
            },
            Stmt::Eval(_)
            | Stmt::Effect(..)
            | Stmt::Read(..)
            | Stmt::Assign(..)
            | Stmt::Alias(..)
            | Stmt::Reduce(_)
            | Stmt::Map(_) => {}
        }
    }
    flow
}

/// Whether control reaches what follows an inlined body: unless all its paths lead into loops that never end. Its jumps
/// lead nowhere else.
pub fn body_flow(stmt: &BodyStmt) -> Flow {
    let mut all = Vec::new();
    jumps(&stmt.body, &mut all);
    let ends = all.iter().any(|(jump, _)| *jump == Jump::End(stmt.id));
    if ends || flow_of(&stmt.body) != Flow::Leaves { Flow::Falls } else { Flow::Leaves }
}

/// Whether control reaches what follows a `while` or `loop`.
pub fn while_flow(stmt: &WhileStmt) -> Flow {
    let mut all = Vec::new();
    jumps(&stmt.head, &mut all);
    jumps(&stmt.body, &mut all);
    let ends = !stmt.endless || all.iter().any(|(jump, _)| *jump == Jump::Break(stmt.id));
    match (ends, all.iter().any(|(jump, _)| is_beyond(*jump, stmt.id))) {
        (false, _) => Flow::Leaves,
        (true, true) => Flow::Maybe,
        (true, false) => Flow::Falls,
    }
}

/// Whether a jump in a loop goes to what is around the loop.
fn is_beyond(jump: Jump, id: LoopId) -> bool {
    match jump {
        Jump::Return => true,
        Jump::End(target) | Jump::Break(target) | Jump::Continue(target) => target < id,
    }
}

/// The first jump in the body of a loop that goes to what is around the loop.
pub fn first_beyond(body: &[Stmt], id: LoopId) -> Option<(Jump, SourceRange)> {
    let mut all = Vec::new();
    jumps(body, &mut all);
    all.into_iter().find(|(jump, _)| is_beyond(*jump, id))
}

/// The first jump among statements, those in nested blocks included.
pub fn first_jump(stmts: &[Stmt]) -> Option<(Jump, SourceRange)> {
    let mut all = Vec::new();
    jumps(stmts, &mut all);
    all.into_iter().next()
}

/// Removes assignments to a variable that nothing reads.
pub fn forget(stmts: &mut Vec<Stmt>, flag: VarId) {
    stmts.retain_mut(|stmt| match stmt {
        Stmt::Assign(var, _) => *var != flag,
        Stmt::If(stmt) => {
            forget(&mut stmt.then, flag);
            forget(&mut stmt.otherwise, flag);
            true
        }
        Stmt::For(stmt) => {
            forget(&mut stmt.body, flag);
            true
        }
        Stmt::While(stmt) => {
            forget(&mut stmt.head, flag);
            forget(&mut stmt.body, flag);
            true
        }
        Stmt::Body(stmt) => {
            forget(&mut stmt.body, flag);
            true
        }
        Stmt::Eval(_) | Stmt::Effect(..) | Stmt::Read(..) | Stmt::Alias(..) => true,
        Stmt::Reduce(_) | Stmt::Map(_) | Stmt::Jump(..) => true,
    });
}
