//! Samples of where programs are, and why they wait: CUPTI's PC sampling.
//!
//! Each multiprocessor looks every few thousand cycles where one of its warps is, and whether it could go on. Kernels run as
//! they do otherwise, also at the same time.

use super::{Cupti, activity, functions, modules, size_to};
use cudarc::driver::sys::CUcontext;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Instructions that are taken from CUPTI at a time.
const AT_ONCE: usize = 16_384;
/// `CUPTI_STALL_REASON_STRING_SIZE`.
const NAME_SIZE: usize = 128;
/// What CUPTI's names of reasons begin with, and how those end that count what others count, too: samples in which no warp
/// of the scheduler went on.
const PREFIX: &str = "smsp__pcsamp_warps_issue_stalled_";
const PART: &str = "_not_issued";

/// `CUpti_PCSamplingConfigurationAttributeType`.
mod attribute {
    use std::ffi::c_int;

    pub const STALL_REASON: c_int = 2;
    pub const COLLECTION_MODE: c_int = 5;
    pub const START_STOP: c_int = 6;
    pub const DATA_BUFFER: c_int = 8;
}

/// `CUPTI_ERROR_OUT_OF_MEMORY`: the hardware's buffer is full, of which CUPTI gives nothing then.
const OUT_OF_MEMORY: c_int = 8;

/// `CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS`: kernels may run at the same time.
const CONTINUOUS: u64 = 1;

/// `CUpti_PCSamplingStallReason`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawStall {
    reason: u32,
    samples: u32,
}

/// `CUpti_PCSamplingPCData`.
#[repr(C)]
struct RawPc {
    size: usize,
    crc: u64,
    pc: u64,
    function_index: u32,
    padding: u32,
    function: *const c_char,
    stall_count: usize,
    stalls: *mut RawStall,
    correlation: u32,
}

/// `CUpti_PCSamplingData`.
#[repr(C)]
struct RawData {
    size: usize,
    capacity: usize,
    total_samples: u64,
    dropped_samples: u64,
    pc_count: usize,
    remaining: usize,
    range: u64,
    pcs: *mut RawPc,
    other_samples: u64,
    is_full: u8,
}

/// `CUpti_PCSamplingConfigurationInfo`, whose value is a union.
#[repr(C)]
struct Attribute {
    kind: c_int,
    status: c_int,
    value: [u64; 3],
}

/// `CUpti_PCSamplingConfigurationInfoParams`.
#[repr(C)]
struct Configure {
    size: usize,
    private: *mut c_void,
    context: CUcontext,
    count: usize,
    attributes: *mut Attribute,
}

/// `CUpti_PCSamplingEnableParams`, and those of `Disable`, `Start` and `Stop`.
#[repr(C)]
struct OfContext {
    size: usize,
    private: *mut c_void,
    context: CUcontext,
}

/// `CUpti_PCSamplingGetDataParams`.
#[repr(C)]
struct GetData {
    size: usize,
    private: *mut c_void,
    context: CUcontext,
    data: *mut RawData,
}

/// `CUpti_PCSamplingGetNumStallReasonsParams`.
#[repr(C)]
struct CountReasons {
    size: usize,
    private: *mut c_void,
    context: CUcontext,
    count: *mut usize,
}

/// `CUpti_PCSamplingGetStallReasonsParams`.
#[repr(C)]
struct NameReasons {
    size: usize,
    private: *mut c_void,
    context: CUcontext,
    count: usize,
    indices: *mut u32,
    names: *mut *mut c_char,
}

functions! {
    struct Functions;
    finalize = cuptiFinalize();
    enable = cuptiPCSamplingEnable(*mut OfContext);
    disable = cuptiPCSamplingDisable(*mut OfContext);
    start = cuptiPCSamplingStart(*mut OfContext);
    stop = cuptiPCSamplingStop(*mut OfContext);
    configure = cuptiPCSamplingSetConfigurationAttribute(*mut Configure);
    get_data = cuptiPCSamplingGetData(*mut GetData);
    count_reasons = cuptiPCSamplingGetNumStallReasons(*mut CountReasons);
    name_reasons = cuptiPCSamplingGetStallReasons(*mut NameReasons);
}

fn ready() -> Result<(&'static Cupti, &'static Functions), String> {
    static READY: OnceLock<Result<Functions, String>> = OnceLock::new();
    let cupti = super::loaded()?;
    cupti.check_counts()?;
    let functions = READY.get_or_init(|| Functions::of(cupti)).as_ref().map_err(Clone::clone)?;
    Ok((cupti, functions))
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::profile) struct Instruction {
    /// CUPTI's checksum of the machine code.
    pub(in crate::profile) crc: u64,
    pub(in crate::profile) entry: String,
    /// In bytes from the beginning of the function.
    pub(in crate::profile) pc: u64,
}

/// What was sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::profile) struct Sampled {
    /// By instruction, the samples of each reason to wait.
    pub(in crate::profile) instructions: BTreeMap<Instruction, BTreeMap<String, u64>>,
    /// Samples that the hardware had no room for.
    pub(in crate::profile) dropped: u64,
    /// Samples in code that CUPTI does not look into.
    pub(in crate::profile) others: u64,
    /// Whether the hardware had no room for more.
    pub(in crate::profile) is_full: bool,
}

impl Sampled {
    /// Takes over what CUPTI gives.
    ///
    /// # Safety
    /// The data are as CUPTI has written them.
    unsafe fn take(&mut self, data: &RawData, reasons: &BTreeMap<u32, String>) {
        self.dropped += data.dropped_samples;
        self.others += data.other_samples;
        self.is_full |= data.is_full != 0;
        let count = data.pc_count.min(data.capacity);
        for index in 0..count {
            // SAFETY: promised by the caller. Names of functions are for us to free when nobody uses them any more; as CUPTI
            // may share them with the records of later profiles, that is never known.
            let (raw, entry, stalls) = unsafe {
                let raw = &*data.pcs.add(index);
                let entry = match raw.function.is_null() {
                    true => "?".into(),
                    false => CStr::from_ptr(raw.function).to_string_lossy(),
                };
                (raw, entry, std::slice::from_raw_parts(raw.stalls, raw.stall_count.min(reasons.len())))
            };
            let known = stalls.iter().filter_map(|stall| Some((reasons.get(&stall.reason)?, stall.samples)));
            let known: Vec<_> = known.filter(|(_, samples)| *samples > 0).collect();
            if known.is_empty() {
                continue;
            }
            let at = Instruction { crc: raw.crc, entry: entry.into_owned(), pc: raw.pc };
            let all = self.instructions.entry(at).or_default();
            for (reason, samples) in known {
                *all.entry(reason.clone()).or_default() += u64::from(samples);
            }
        }
    }
}

/// Detaches CUPTI from the process, in which nobody uses CUDA meanwhile, so that it looks at all code that is loaded when it comes back. Otherwise it takes the
/// kernels of code that was loaded between two profiles, and of code that it has counted, for kernels of others, and has no
/// samples of them.
///
/// # Errors
/// If another profiler has the process: it would be detached too.
fn detach(cupti: &Cupti, functions: &Functions) -> Result<(), String> {
    drop(modules::Watch::begin()?);
    // What others have collected they get.
    if let Err(why) = activity::flush() {
        log::debug!("records of CUPTI may be lost: {why}");
    }
    // SAFETY: it takes nothing; no profile is being made, and nobody else subscribes.
    let status = unsafe { (functions.finalize)() };
    cupti.check("cuptiFinalize", status)?;
    activity::was_detached();
    Ok(())
}

/// Where CUPTI puts samples.
struct Buffer {
    data: Box<RawData>,
    _pcs: Vec<RawPc>,
    _stalls: Vec<RawStall>,
}

// SAFETY: it points at its own memory only.
unsafe impl Send for Buffer {}

impl Buffer {
    /// With room for so many reasons of each instruction.
    fn new(reasons: usize) -> Buffer {
        let mut stalls = vec![RawStall { reason: 0, samples: 0 }; AT_ONCE * reasons];
        let pc = |stalls: &mut [RawStall]| RawPc {
            size: size_of::<RawPc>(),
            crc: 0,
            pc: 0,
            function_index: 0,
            padding: 0,
            function: std::ptr::null(),
            stall_count: 0,
            stalls: stalls.as_mut_ptr(),
            correlation: 0,
        };
        let mut pcs: Vec<RawPc> = stalls.chunks_exact_mut(reasons).map(pc).collect();
        let data = Box::new(RawData {
            size: size_of::<RawData>(),
            capacity: pcs.len(),
            total_samples: 0,
            dropped_samples: 0,
            pc_count: 0,
            remaining: 0,
            range: 0,
            pcs: pcs.as_mut_ptr(),
            other_samples: 0,
            is_full: 0,
        });
        Buffer { data, _pcs: pcs, _stalls: stalls }
    }

    /// Forgets what has been taken.
    fn clear(&mut self) {
        (self.data.pc_count, self.data.is_full) = (0, 0);
        (self.data.dropped_samples, self.data.other_samples) = (0, 0);
    }
}

/// Samples are taken of a context.
struct Enabled {
    cupti: &'static Cupti,
    functions: &'static Functions,
    context: CUcontext,
}

// SAFETY: contexts are handles that any thread may use.
unsafe impl Send for Enabled {}

impl Enabled {
    fn call(
        &self,
        name: &str,
        function: fn(&Functions) -> unsafe extern "C" fn(*mut OfContext) -> c_int,
    ) -> Result<(), String> {
        let mut params =
            OfContext { size: size_to!(OfContext, context: CUcontext), private: null_mut(), context: self.context };
        // SAFETY: the context is alive.
        let status = unsafe { function(self.functions)(&mut params) };
        self.cupti.check(name, status)
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        let _ = self.call("cuptiPCSamplingDisable", |functions| functions.disable);
    }
}

/// Whether CUPTI has samples that it has not given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It may have.
    Some,
    None,
    /// It had, and lost them: there was no room for all.
    Lost,
}

/// Samples are taken.
pub(in crate::profile) struct Sampling {
    // Dropped in this order: CUPTI writes into the buffer until it is disabled.
    enabled: Enabled,
    buffer: Buffer,
    reasons: BTreeMap<u32, String>,
    pub(in crate::profile) modules: modules::Watch,
}

impl Sampling {
    /// Begins to take samples of a context, which is current and has nothing to do.
    ///
    /// # Errors
    /// Why that cannot be.
    pub(in crate::profile) fn begin(context: CUcontext) -> Result<Sampling, String> {
        let (cupti, functions) = ready()?;
        detach(cupti, functions)?;
        let modules = modules::Watch::begin()?;
        let mut params = OfContext { size: size_to!(OfContext, context: CUcontext), private: null_mut(), context };
        // SAFETY: the context is alive.
        let status = unsafe { (functions.enable)(&mut params) };
        cupti.check("cuptiPCSamplingEnable", status)?;
        let enabled = Enabled { cupti, functions, context };
        let reasons = enabled.reasons()?;
        let buffer = Buffer::new(reasons.len());
        // From here on CUPTI has the buffer, whatever fails.
        let mut sampling = Sampling { enabled, buffer, reasons, modules };
        sampling.enabled.configure(&sampling.reasons, &mut sampling.buffer)?;
        sampling.enabled.call("cuptiPCSamplingStart", |functions| functions.start)?;
        Ok(sampling)
    }

    /// What was sampled, with who knows the code. The device has nothing more to do.
    ///
    /// # Errors
    /// What CUPTI says.
    pub(in crate::profile) fn finish(mut self) -> Result<(Sampled, modules::Watch), String> {
        self.enabled.call("cuptiPCSamplingStop", |functions| functions.stop)?;
        let mut sampled = Sampled::default();
        // What there was room for CUPTI has written; the rest it gives until there is no more.
        let mut left = Left::Some;
        while left == Left::Some {
            // SAFETY: CUPTI has written them.
            unsafe { sampled.take(&self.buffer.data, &self.reasons) };
            self.buffer.clear();
            left = self.enabled.get(&mut self.buffer)?;
        }
        sampled.is_full |= left == Left::Lost;
        // SAFETY: as above.
        unsafe { sampled.take(&self.buffer.data, &self.reasons) };
        let Sampling { enabled, mut buffer, reasons, modules } = self;
        // What was still on its way comes now.
        buffer.clear();
        drop(enabled);
        // SAFETY: CUPTI has written them.
        unsafe { sampled.take(&buffer.data, &reasons) };
        Ok((sampled, modules))
    }
}

impl Enabled {
    /// The reasons to wait, by their numbers.
    fn reasons(&self) -> Result<BTreeMap<u32, String>, String> {
        let (private, context, mut count) = (null_mut(), self.context, 0);
        let size = size_to!(CountReasons, count: *mut usize);
        let mut params = CountReasons { size, private, context, count: &mut count };
        // SAFETY: the context is alive, the place writable.
        let status = unsafe { (self.functions.count_reasons)(&mut params) };
        self.cupti.check("cuptiPCSamplingGetNumStallReasons", status)?;
        let mut texts = vec![0 as c_char; count * NAME_SIZE];
        let mut names: Vec<*mut c_char> = texts.chunks_exact_mut(NAME_SIZE).map(<[c_char]>::as_mut_ptr).collect();
        let mut indices = vec![0u32; count];
        let size = size_to!(NameReasons, names: *mut *mut c_char);
        let (indices_at, names_at) = (indices.as_mut_ptr(), names.as_mut_ptr());
        let mut params = NameReasons { size, private, context, count, indices: indices_at, names: names_at };
        // SAFETY: there are as many places as are told, each as long as CUPTI wants.
        let status = unsafe { (self.functions.name_reasons)(&mut params) };
        self.cupti.check("cuptiPCSamplingGetStallReasons", status)?;
        // SAFETY: CUPTI's names end in zero.
        let text = |at: &*mut c_char| unsafe { CStr::from_ptr(*at) }.to_string_lossy().into_owned();
        let reasons = chosen(indices.iter().copied().zip(names.iter().map(text)));
        if reasons.is_empty() {
            return Err(format!("CUPTI has no reason to wait whose name begins with {PREFIX}"));
        }
        Ok(reasons)
    }

    fn configure(&self, reasons: &BTreeMap<u32, String>, buffer: &mut Buffer) -> Result<(), String> {
        let mut indices: Vec<u32> = reasons.keys().copied().collect();
        let data: *mut RawData = &mut *buffer.data;
        let address = |at: *mut c_void| at.expose_provenance() as u64;
        let attribute = |kind, first, second| Attribute { kind, status: 0, value: [first, second, 0] };
        let mut attributes = [
            attribute(attribute::STALL_REASON, indices.len() as u64, address(indices.as_mut_ptr().cast())),
            attribute(attribute::COLLECTION_MODE, CONTINUOUS, 0),
            attribute(attribute::START_STOP, 1, 0),
            attribute(attribute::DATA_BUFFER, address(data.cast()), 0),
        ];
        let mut params = Configure {
            size: size_to!(Configure, attributes: *mut Attribute),
            private: null_mut(),
            context: self.context,
            count: attributes.len(),
            attributes: attributes.as_mut_ptr(),
        };
        // SAFETY: the attributes and what they point at are there during the call; the buffer lives until CUPTI is disabled.
        let status = unsafe { (self.functions.configure)(&mut params) };
        self.cupti.check("cuptiPCSamplingSetConfigurationAttribute", status)?;
        attributes.iter().try_for_each(|attribute| {
            let name = format!("cuptiPCSamplingSetConfigurationAttribute, attribute {}", attribute.kind);
            self.cupti.check(&name, attribute.status)
        })
    }

    /// Has CUPTI write samples into the buffer, and says what that is of those there were.
    fn get(&self, buffer: &mut Buffer) -> Result<Left, String> {
        let size = size_to!(GetData, data: *mut RawData);
        let mut params = GetData { size, private: null_mut(), context: self.context, data: &mut *buffer.data };
        // SAFETY: the buffer has the room that it says.
        let status = unsafe { (self.functions.get_data)(&mut params) };
        if status == OUT_OF_MEMORY {
            return Ok(Left::Lost);
        }
        self.cupti.check("cuptiPCSamplingGetData", status)?;
        Ok(if buffer.data.pc_count > 0 { Left::Some } else { Left::None })
    }
}

/// The reasons that together count each sample once, by their short names.
fn chosen(all: impl Iterator<Item = (u32, String)>) -> BTreeMap<u32, String> {
    let short = |(index, name): (u32, String)| {
        let short = name.strip_prefix(PREFIX)?;
        (!short.ends_with(PART)).then(|| (index, short.to_string()))
    };
    all.filter_map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// From CUPTI's headers, of 12.6, 12.9 and 13.0.
    #[test]
    fn structures_are_those_of_cupti() {
        assert_eq!((size_of::<RawStall>(), size_of::<RawPc>(), size_of::<RawData>()), (8, 64, 80));
        assert_eq!((offset_of!(RawPc, correlation), offset_of!(RawData, is_full)), (56, 72));
        assert_eq!((size_of::<Attribute>(), offset_of!(Attribute, value)), (32, 8));
        assert_eq!(size_to!(Configure, attributes: *mut Attribute), 40);
        assert_eq!((size_to!(OfContext, context: CUcontext), size_to!(GetData, data: *mut RawData)), (24, 32));
        assert_eq!(size_to!(CountReasons, count: *mut usize), 32);
        assert_eq!(size_to!(NameReasons, names: *mut *mut c_char), 48);
    }

    #[test]
    fn reasons_count_each_sample_once() {
        let names = ["smsp__pcsamp_sample_data", "smsp__pcsamp_warps_issue_stalled_wait", "other"];
        let part = "smsp__pcsamp_warps_issue_stalled_wait_not_issued";
        let all = (3..).zip(names.into_iter().chain([part]).map(str::to_string));
        assert_eq!(chosen(all), BTreeMap::from([(4, "wait".to_string())]));
    }

    #[test]
    fn samples_of_an_instruction_are_summed_over_what_cupti_gives() {
        let reasons = BTreeMap::from([(7, "wait".to_string()), (9, "barrier".to_string())]);
        let mut buffer = Buffer::new(reasons.len());
        let mut write = |counts: &[[u32; 2]]| {
            buffer.data.pc_count = counts.len();
            buffer.data.dropped_samples = 1;
            for (index, [wait, barrier]) in counts.iter().enumerate() {
                let stalls = [RawStall { reason: 7, samples: *wait }, RawStall { reason: 9, samples: *barrier }];
                buffer._stalls[2 * index..][..2].copy_from_slice(&stalls);
                let pc = &mut buffer._pcs[index];
                (pc.crc, pc.pc, pc.function, pc.stall_count) = (5, 16 * index as u64, c"add".as_ptr(), 2);
            }
            let mut sampled = Sampled::default();
            for _ in 0..2 {
                // SAFETY: the buffer was written as CUPTI does.
                unsafe { sampled.take(&buffer.data, &reasons) };
            }
            sampled
        };
        let sampled = write(&[[3, 0], [0, 0], [1, 2]]);
        let of = |pc: u64| sampled.instructions.get(&Instruction { crc: 5, entry: "add".into(), pc });
        assert_eq!(of(0), Some(&BTreeMap::from([("wait".to_string(), 6)])));
        assert_eq!(of(16), None, "nobody was there");
        assert_eq!(of(32), Some(&BTreeMap::from([("wait".to_string(), 2), ("barrier".to_string(), 4)])));
        assert_eq!((sampled.dropped, sampled.is_full), (2, false));
    }
}
