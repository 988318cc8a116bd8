//! A model of CUPTI, which the test compiles and opens in its place: it counts and samples what it is told to, and refuses
//! what CUPTI's headers do not allow. With `--cfg refuses` nobody may count, with `--cfg old` it is of CUDA 11, with
//! `--cfg starts_nothing` it takes no samples after all, with `--cfg is_full` the hardware has no room for more of them, and with
//! `--cfg collects` it begins to collect kernels, but knows no contexts.
//!
//! It is no part of a crate. Its unsafe blocks rely on what CUPTI's callers promise: that pointers are those of its headers.

#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;

const SUCCESS: c_int = 0;
const INVALID_PARAMETER: c_int = 1;
const INVALID_OPERATION: c_int = 7;
const OUT_OF_MEMORY: c_int = 8;
const INVALID_METRIC_NAME: c_int = 17;
const INSUFFICIENT_PRIVILEGES: c_int = 35;

/// What is under way.
struct State {
    initialized: bool,
    enabled: bool,
    configured: bool,
    started: bool,
    decoded: bool,
    launches: u32,
    sampling: Option<usize>,
    gotten: u32,
    flushed: bool,
    collecting: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    initialized: false,
    enabled: false,
    configured: false,
    started: false,
    decoded: false,
    launches: 0,
    sampling: None,
    gotten: 0,
    flushed: false,
    collecting: false,
});

fn state() -> std::sync::MutexGuard<'static, State> {
    STATE.lock().unwrap()
}

fn done(is_right: bool, wrong: c_int) -> c_int {
    if is_right { SUCCESS } else { wrong }
}

/// The words of a structure of parameters, if it is as large as it should be.
unsafe fn words<'p>(params: *mut usize, size: usize) -> Option<&'p mut [usize]> {
    unsafe { (*params == size && *params.add(1) == 0).then(|| std::slice::from_raw_parts_mut(params, size.div_ceil(8))) }
}

macro_rules! params {
    ($params:ident, $size:expr) => {
        match unsafe { words($params, $size) } {
            Some(words) => words,
            None => return INVALID_PARAMETER,
        }
    };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuptiGetVersion(version: *mut u32) -> c_int {
    unsafe { *version = if cfg!(old) { 14 } else { 130001 } };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuptiGetResultString(status: c_int, text: *mut *const c_char) -> c_int {
    let name = match status {
        INVALID_PARAMETER => c"CUPTI_ERROR_INVALID_PARAMETER",
        INVALID_OPERATION => c"CUPTI_ERROR_INVALID_OPERATION",
        INVALID_METRIC_NAME => c"CUPTI_ERROR_INVALID_METRIC_NAME",
        INSUFFICIENT_PRIVILEGES => c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        _ => return INVALID_PARAMETER,
    };
    unsafe { *text = name.as_ptr() };
    SUCCESS
}

// Times: nobody has any here, so that profiles have those between events.

#[unsafe(no_mangle)]
extern "C" fn cuptiGetTimestamp(_: *mut u64) -> c_int {
    INVALID_OPERATION
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetContextId(_: *mut c_void, _: *mut u32) -> c_int {
    INVALID_OPERATION
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityRegisterCallbacks(_: *const c_void, _: *const c_void) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityEnable(_: c_int) -> c_int {
    let state = &mut *state();
    assert!(!state.collecting, "nobody has disabled what collects");
    state.collecting = cfg!(collects);
    done(state.collecting, INVALID_OPERATION)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityDisable(_: c_int) -> c_int {
    state().collecting = false;
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityFlushAll(_: u32) -> c_int {
    state().flushed = true;
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityGetNumDroppedRecords(_: *mut c_void, _: u32, _: *mut usize) -> c_int {
    INVALID_OPERATION
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityGetNextRecord(_: *mut u8, _: usize, _: *mut *mut c_void) -> c_int {
    INVALID_OPERATION
}

/// Nothing may be under way, and records have been given away.
#[unsafe(no_mangle)]
extern "C" fn cuptiFinalize() -> c_int {
    let state = state();
    done(!state.initialized && state.sampling.is_none() && state.flushed, INVALID_OPERATION)
}

// Counters.

#[unsafe(no_mangle)]
extern "C" fn cuptiProfilerInitialize(params: *mut usize) -> c_int {
    params!(params, 16);
    let mut state = state();
    done(!std::mem::replace(&mut state.initialized, true), INVALID_OPERATION)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiProfilerDeInitialize(params: *mut usize) -> c_int {
    params!(params, 16);
    let mut state = state();
    done(std::mem::replace(&mut state.initialized, false) && !state.enabled, INVALID_OPERATION)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiDeviceGetChipName(params: *mut usize) -> c_int {
    let words = params!(params, 32);
    words[3] = c"GA100".as_ptr() as usize;
    done(words[2] == 0, INVALID_PARAMETER)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiProfilerGetCounterAvailability(params: *mut usize) -> c_int {
    let words = params!(params, 40);
    if cfg!(refuses) {
        return INSUFFICIENT_PRIVILEGES;
    }
    words[3] = 24;
    done(words[2] != 0, INVALID_PARAMETER)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiProfilerHostInitialize(params: *mut usize) -> c_int {
    let words = params!(params, 48);
    words[5] = 77;
    let chip = unsafe { CStr::from_ptr(words[3] as *const c_char) };
    done(words[2] as u32 == 0 && chip == c"GA100" && words[4] != 0, INVALID_PARAMETER)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiProfilerHostDeinitialize(params: *mut usize) -> c_int {
    let words = params!(params, 24);
    done(words[2] == 77, INVALID_PARAMETER)
}

fn names(at: usize, count: usize) -> Vec<String> {
    let names = unsafe { std::slice::from_raw_parts(at as *const *const c_char, count) };
    names.iter().map(|name| unsafe { CStr::from_ptr(*name) }.to_string_lossy().into_owned()).collect()
}

#[unsafe(no_mangle)]
extern "C" fn cuptiProfilerHostConfigAddMetrics(params: *mut usize) -> c_int {
    let words = params!(params, 40);
    let is_known = names(words[3], words[4]).iter().all(|name| name.contains("__"));
    done(words[2] == 77 && is_known, INVALID_METRIC_NAME)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiProfilerHostGetConfigImageSize(params: *mut usize) -> c_int {
    let words = params!(params, 32);
    words[3] = 100;
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuptiProfilerHostGetConfigImage(params: *mut usize) -> c_int {
    let words = params!(params, 40);
    unsafe { std::slice::from_raw_parts_mut(words[4] as *mut u8, words[3]) }.fill(5);
    done(words[3] == 100, INVALID_PARAMETER)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiProfilerHostGetNumOfPasses(params: *mut usize) -> c_int {
    let words = params!(params, 40);
    words[4] = 3;
    done(unsafe { *(words[3] as *const u8) } == 5, INVALID_PARAMETER)
}

/// The first number is always the time. Then come ten times the number of the counter, and what was launched before.
#[unsafe(no_mangle)]
extern "C" fn cuptiProfilerHostEvaluateToGpuValues(params: *mut usize) -> c_int {
    let words = params!(params, 72);
    let state = state();
    if !state.decoded || words[5] != 0 || names(words[6], words[7])[0] != "gpu__time_duration.sum" {
        return INVALID_OPERATION;
    }
    let values = unsafe { std::slice::from_raw_parts_mut(words[8] as *mut f64, words[7]) };
    for (index, value) in values.iter_mut().enumerate() {
        *value = if index == 0 { 1500.0 } else { (10 * index) as f64 + f64::from(state.launches) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuptiRangeProfilerEnable(params: *mut usize) -> c_int {
    let words = params!(params, 32);
    words[3] = 88;
    let mut state = state();
    done(state.initialized && words[2] != 0 && !std::mem::replace(&mut state.enabled, true), INVALID_OPERATION)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiRangeProfilerDisable(params: *mut usize) -> c_int {
    let words = params!(params, 24);
    let mut state = state();
    state.configured = false;
    done(words[2] == 88 && std::mem::replace(&mut state.enabled, false) && !state.started, INVALID_OPERATION)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiRangeProfilerGetCounterDataSize(params: *mut usize) -> c_int {
    let words = params!(params, 64);
    words[7] = 256;
    done(words[2] == 88 && words[5] > 0 && words[6] as u32 as usize >= words[5], INVALID_PARAMETER)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiRangeProfilerCounterDataImageInitialize(params: *mut usize) -> c_int {
    let words = params!(params, 40);
    state().decoded = false;
    done(words[2] == 88 && words[3] == 256 && words[4] != 0, INVALID_PARAMETER)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiRangeProfilerSetConfig(params: *mut usize) -> c_int {
    let words = params!(params, 90);
    let mut state = state();
    state.configured = true;
    // Each kernel is a range, and is run again by CUPTI; one level of nesting, the first.
    let (range, replay, nesting) = (words[7] as u32, (words[7] >> 32) as u32, words[9] as u32);
    let is_right = (range, replay, nesting) == (1, 2, 1 | 1 << 16) && words[3] == 100 && words[5] == 256;
    done(is_right && words[2] == 88 && !state.started, INVALID_PARAMETER)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiRangeProfilerStart(params: *mut usize) -> c_int {
    let words = params!(params, 24);
    let mut state = state();
    let is_right = words[2] == 88 && state.configured && state.enabled;
    done(is_right && !std::mem::replace(&mut state.started, true), INVALID_OPERATION)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiRangeProfilerStop(params: *mut usize) -> c_int {
    let words = params!(params, 41);
    let mut state = state();
    state.launches += 1;
    done(words[2] == 88 && std::mem::replace(&mut state.started, false), INVALID_OPERATION)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiRangeProfilerDecodeData(params: *mut usize) -> c_int {
    let words = params!(params, 32);
    let mut state = state();
    state.decoded = true;
    done(words[2] == 88 && !state.started, INVALID_OPERATION)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiRangeProfilerGetCounterDataInfo(params: *mut usize) -> c_int {
    let words = params!(params, 40);
    words[4] = 1;
    done(state().decoded && words[3] == 256, INVALID_OPERATION)
}

// Samples.

/// Machine code that was loaded.
static CODE: [u8; 4] = *b"code";
const CRC: u64 = 0xC0DE;

#[repr(C)]
struct Module {
    id: u32,
    size: usize,
    code: *const u8,
}

#[unsafe(no_mangle)]
extern "C" fn cuptiSubscribe(subscriber: *mut usize, callback: Callback, _: *mut c_void) -> c_int {
    unsafe { *subscriber = callback as usize };
    SUCCESS
}

type Callback = extern "C" fn(*mut c_void, c_int, u32, *const c_void);

#[unsafe(no_mangle)]
extern "C" fn cuptiUnsubscribe(_: usize) -> c_int {
    SUCCESS
}

/// Tells of a module at once.
#[unsafe(no_mangle)]
extern "C" fn cuptiEnableCallback(enable: u32, subscriber: usize, domain: c_int, id: u32) -> c_int {
    let callback = unsafe { std::mem::transmute::<usize, Callback>(subscriber) };
    let module = Module { id: 1, size: CODE.len(), code: CODE.as_ptr() };
    let data: [*const Module; 3] = [null_mut(), null_mut(), &module];
    callback(null_mut(), domain, id, data.as_ptr().cast());
    done((enable, domain, id) == (1, 3, 6), INVALID_PARAMETER)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetCubinCrc(params: *mut usize) -> c_int {
    let words = unsafe { std::slice::from_raw_parts_mut(params, 4) };
    words[3] = CRC as usize;
    done(words[0] == 32 && words[1] == CODE.len(), INVALID_PARAMETER)
}

unsafe extern "C" {
    fn strdup(text: *const c_char) -> *mut c_char;
}

/// Code up to 64 is from line 6, what follows from line 7.
#[unsafe(no_mangle)]
extern "C" fn cuptiGetSassToSourceCorrelation(params: *mut usize) -> c_int {
    let words = unsafe { std::slice::from_raw_parts_mut(params, 8) };
    if words[0] != 64 || words[3] != CODE.len() {
        return INVALID_PARAMETER;
    }
    words[4] = if words[5] < 64 { 6 } else { 7 };
    words[6] = unsafe { strdup(c"add.rs".as_ptr()) } as usize;
    words[7] = unsafe { strdup(c"src".as_ptr()) } as usize;
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingEnable(params: *mut usize) -> c_int {
    params!(params, 24);
    if cfg!(refuses) { INSUFFICIENT_PRIVILEGES } else { SUCCESS }
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingDisable(params: *mut usize) -> c_int {
    params!(params, 24);
    let data = state().sampling.take();
    // What was still on its way.
    data.into_iter().for_each(|data| write(data, &[(80, [0, 1])], 0));
    done(data.is_some() || cfg!(refuses), INVALID_OPERATION)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingStart(params: *mut usize) -> c_int {
    params!(params, 24);
    done(state().sampling.is_some() && !cfg!(starts_nothing), INVALID_OPERATION)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingStop(params: *mut usize) -> c_int {
    params!(params, 24);
    let data = state().sampling;
    data.map_or(INVALID_OPERATION, |data| {
        // What there was room for comes now; two more instructions later.
        write(data, &[(0, [5, 0])], 2);
        SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingSetConfigurationAttribute(params: *mut usize) -> c_int {
    let words = params!(params, 40);
    let attributes = unsafe { std::slice::from_raw_parts(words[4] as *const [usize; 4], words[3]) };
    for [kind, value, second, _] in attributes {
        match kind {
            8 => state().sampling = Some(*value),
            6 if *value != 1 => return INVALID_PARAMETER,
            // Two of the reasons that there are: the others count something else, or the same.
            2 => match unsafe { std::slice::from_raw_parts(*second as *const u32, *value) } {
                [1, 3] => {}
                _ => return INVALID_PARAMETER,
            },
            _ => {}
        }
    }
    SUCCESS
}

const REASONS: [&CStr; 4] = [
    c"smsp__pcsamp_sample_data",
    c"smsp__pcsamp_warps_issue_stalled_long_scoreboard",
    c"smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued",
    c"smsp__pcsamp_warps_issue_stalled_selected",
];

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingGetNumStallReasons(params: *mut usize) -> c_int {
    let words = params!(params, 32);
    unsafe { *(words[3] as *mut usize) = REASONS.len() };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingGetStallReasons(params: *mut usize) -> c_int {
    let words = params!(params, 48);
    for (index, name) in REASONS.iter().enumerate() {
        let name = name.to_bytes_with_nul();
        unsafe {
            *(words[4] as *mut u32).add(index) = index as u32;
            let to = *(words[5] as *mut *mut u8).add(index);
            std::ptr::copy_nonoverlapping(name.as_ptr(), to, name.len());
        }
    }
    done(words[3] == REASONS.len(), INVALID_PARAMETER)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingGetData(params: *mut usize) -> c_int {
    let words = params!(params, 32);
    // It takes its time, in which other threads may do what they should not.
    std::thread::sleep(std::time::Duration::from_millis(2));
    if cfg!(is_full) {
        return OUT_OF_MEMORY;
    }
    let first = std::mem::replace(&mut state().gotten, 1) == 0;
    write(words[3], if first { &[(32, [2, 1]), (64, [0, 4])] } else { &[] }, 0);
    SUCCESS
}

/// Writes what was sampled: places in the code, with samples of both reasons; and how many are left.
fn write(data: usize, sampled: &[(u64, [u32; 2])], remaining: usize) {
    let data = unsafe { std::slice::from_raw_parts_mut(data as *mut usize, 10) };
    assert!(data[0] == 80 && data[1] >= sampled.len());
    (data[4], data[5]) = (sampled.len(), remaining);
    for (index, (pc, [waits, goes_on])) in sampled.iter().enumerate() {
        let record = unsafe { std::slice::from_raw_parts_mut((data[7] as *mut usize).add(8 * index), 8) };
        assert!(record[0] == 64);
        (record[1], record[2], record[4], record[5]) = (CRC as usize, *pc as usize, c"add".as_ptr() as usize, 2);
        let stalls = unsafe { std::slice::from_raw_parts_mut(record[6] as *mut [u32; 2], 2) };
        stalls.copy_from_slice(&[[1, *waits], [3, *goes_on]]);
    }
}
