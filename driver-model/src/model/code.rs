//! Modules: PTX, and what stands for machine code, which is PTX in an envelope.

use super::action::KernelWork;
use super::memory::{Place, Space};
use super::shadow::Touched;
use super::work::Point;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use tilewright_emulator::{Code, Global, Programs, Touch};

/// Registers of a multiprocessor, and threads that a program can have.
const REGISTERS: u32 = 65536;
const MAX_THREADS: u32 = 1024;
/// Dynamic shared memory that a function may have without asking. From "Shared Memory" in the CUDA programming guide.
pub(crate) const SHARED_WITHOUT_ASKING: i32 = 48 << 10;
/// How what stands for machine code begins. The compute capability and the length of the PTX follow, four bytes each.
const MAGIC: &[u8; 16] = b"\x7fmodel of a GPU\0";

/// A kernel that was loaded.
pub(crate) struct Function {
    pub(crate) code: Code,
    pub(crate) entry: String,
    pub(crate) module: usize,
    pub(crate) context: usize,
    pub(crate) registers: u32,
    /// Threads along the axes together, by `.maxntid` and by what registers allow.
    pub(crate) max_threads: u32,
    /// What `.reqntid` says.
    pub(crate) exact_threads: Option<u32>,
    /// Dynamic shared memory that a launch may have.
    pub(crate) max_shared: AtomicI32,
}

/// Why an image is not loaded.
pub(crate) enum Refusal {
    /// It is neither PTX nor machine code.
    Image,
    /// Machine code of another GPU.
    Gpu,
    /// PTX that does not compile, and what the compiler says.
    Ptx(String),
}

/// What stands for machine code of the PTX.
pub(crate) fn machine_code(ptx: &str, capability: u32) -> Vec<u8> {
    let length = u32::try_from(ptx.len()).unwrap_or(u32::MAX);
    [MAGIC.as_slice(), &capability.to_le_bytes(), &length.to_le_bytes(), ptx.as_bytes()].concat()
}

/// The PTX in an image.
///
/// # Safety
///
/// The image is PTX that ends in zero, or as long as it says.
pub(crate) unsafe fn ptx_of(image: *const u8, capability: u32) -> Result<String, Refusal> {
    // SAFETY: promised by the caller; as long as bytes are those of the envelope there is no zero among them but the last.
    let is_machine = (0..MAGIC.len()).all(|at| unsafe { image.add(at).read() } == MAGIC[at]);
    if !is_machine {
        // SAFETY: promised by the caller.
        let text = unsafe { std::ffi::CStr::from_ptr(image.cast()) };
        return text.to_str().map(str::to_string).map_err(|_| Refusal::Image);
    }
    // SAFETY: the envelope goes on with two numbers, and then the PTX.
    let number = |at: usize| unsafe { image.add(MAGIC.len() + 4 * at).cast::<[u8; 4]>().read() };
    let [made_for, length] = [0, 1].map(|at| u32::from_le_bytes(number(at)));
    if made_for != capability {
        return Err(Refusal::Gpu);
    }
    // SAFETY: as above.
    let text = unsafe { std::slice::from_raw_parts(image.add(MAGIC.len() + 8), length as usize) };
    String::from_utf8(text.to_vec()).map_err(|_| Refusal::Image)
}

/// The kernels of PTX, as the driver's compiler would accept them.
pub(crate) fn compile(ptx: &str, capability: u32, module: usize, context: usize) -> Result<Vec<Function>, Refusal> {
    let begins = ptx.trim_start();
    if !begins.starts_with(".version") && !begins.starts_with("//") {
        return Err(Refusal::Image);
    }
    let target = ptx.lines().find_map(|line| line.strip_prefix(".target"));
    let Some(target) = target.and_then(|name| name.trim().strip_prefix("sm_")) else {
        return Err(Refusal::Ptx("no target".into()));
    };
    let number: String = target.chars().take_while(char::is_ascii_digit).collect();
    let (number, only_there) = (number.parse().unwrap_or(u32::MAX), target.trim_end().ends_with('a'));
    if number > capability || (only_there && number != capability) {
        return Err(Refusal::Ptx(format!("SM version specified by .target is higher than sm_{capability}")));
    }
    let entries = ptx.split(".visible .entry ").skip(1).map(|rest| rest.split('(').next().unwrap_or(rest).trim());
    let entries: Vec<&str> = entries.collect();
    let [entry] = entries[..] else {
        return Err(Refusal::Ptx(format!("the model runs modules of one kernel, and this has {}", entries.len())));
    };
    let code = super::quietly(|| Code::parse(ptx, entry)).map_err(Refusal::Ptx)?;
    let directive = |name: &str| -> Option<u32> {
        let rest = ptx.split(name).nth(1)?.lines().next()?;
        rest.split(',').map(|number| number.trim().parse::<u32>().ok()).try_fold(1, |all, number| Some(all * number?))
    };
    // As many as leave room for the most threads, if there are no fewer.
    let declared = ptx.split("%r<").nth(1).and_then(|rest| rest.split('>').next()?.parse().ok()).unwrap_or(16);
    let registers = u32::clamp(declared, 16, REGISTERS / MAX_THREADS);
    let exact_threads = directive(".reqntid");
    let max_threads = directive(".maxntid").or(exact_threads).unwrap_or(MAX_THREADS).min(MAX_THREADS);
    let max_shared = AtomicI32::new(SHARED_WITHOUT_ASKING);
    let entry = entry.to_string();
    Ok(vec![Function { code, entry, module, context, registers, max_threads, exact_threads, max_shared }])
}

impl Function {
    pub(crate) fn may_have_shared(&self, bytes: u32) -> bool {
        i64::from(bytes) <= i64::from(self.max_shared.load(Ordering::Relaxed))
    }
}

impl KernelWork {
    /// Runs all programs. The error says what a thread has done that it must not.
    pub(crate) fn run(&self, point: &Arc<Point>, space: &mut Space, seed: u64) -> Result<(), String> {
        let mut view = View { point, space, known: Vec::new(), touched: Touched::default() };
        let (code, params) = (&self.function.code, &self.params[..]);
        let (grid, threads, shared_bytes) = (self.grid, self.block[0], self.shared_bytes);
        let programs = Programs { code, params, grid, threads, shared_bytes, seed };
        let result = super::quietly(|| programs.run(&mut view));
        let View { space, touched, .. } = view;
        space.touch_all(point, &touched);
        result.map_err(|what| format!("kernel `{}` of call {}: {what}", self.function.entry, point.call))
    }
}

/// Memory as a kernel sees it.
struct View<'v> {
    point: &'v Point,
    space: &'v mut Space,
    /// Allocations that it may touch.
    known: Vec<Place>,
    touched: Touched,
}

impl Global for View<'_> {
    fn at(&mut self, address: u64, len: usize, touch: Touch, text: &str) -> &mut [u8] {
        assert!(address.is_multiple_of(len as u64), "address {address:#x} is not aligned to {len} bytes: {text}");
        let is_inside = |place: &&Place| address >= place.base && address + len as u64 <= place.end;
        let place = match self.known.iter().find(is_inside) {
            Some(place) => *place,
            None => {
                let place = self.space.locate(self.point, address, len).unwrap_or_else(|what| panic!("{what}: {text}"));
                self.known.push(place);
                place
            }
        };
        // What is updated is written.
        self.touched.add(address, len, touch != Touch::Load);
        // SAFETY: the range is inside an allocation, which is borrowed with the space.
        unsafe { std::slice::from_raw_parts_mut(place.start.add((address - place.base) as usize), len) }
    }
}
