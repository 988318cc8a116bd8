//! Configurations: what is searched, what is kept, and whether what is kept still fits.

use std::cell::Cell;
use std::time::Duration;
use tilewright::prelude::*;
use tilewright::tune::Row;
use tilewright_kernels::config::own_table;
use tilewright_kernels::rows::{self, SoftmaxConfig};
use tilewright_kernels::tuning::{self, Asked, Effort, Found, Results};
use tilewright_kernels::{Context, Table, Tensor};

/// Tunes the softmax of three rows on the CPU, where results are right if `right` says so.
fn tuned(right: impl Fn(usize) -> bool) -> Found {
    struct Checked<'c, R>(&'c Cell<usize>, R);

    impl<R: Fn(usize) -> bool> Results for Checked<'_, R> {
        fn forget(&mut self) -> Result<(), Error> {
            self.0.set(0);
            Ok(())
        }

        fn verify(&mut self) -> Result<(), String> {
            if self.1(self.0.get()) { Ok(()) } else { Err(format!("wrong with {}", self.0.get())) }
        }
    }

    let cx = Context::new(&Device::cpu());
    let x = Tensor::upload(cx.device(), &[1.0f32; 3 * 1000], [3, 1000]).unwrap();
    let (result, asked) = cx.asked(|cx| rows::softmax(cx, &x));
    result.unwrap();
    let block = Cell::new(0);
    let work = |cx: &Context| {
        let (result, asked) = cx.asked(|cx| rows::softmax(cx, &x));
        block.set(asked[0].config["block"] as usize);
        result.map(drop)
    };
    let effort = Effort::default().budget(Duration::from_secs(60)).trials(6);
    tuning::tune(&cx, &asked[0], &effort, work, &mut Checked(&block, right)).unwrap()
}

#[test]
fn functions_are_tuned_from_what_they_asked_and_rows_are_for_contexts() {
    let found = tuned(|_| true);
    assert_eq!((found.asked.kernel, found.asked.sizes.as_slice()), ("softmax", &[3, 1000][..]));
    assert!(found.tried > 1 && found.failed.is_empty(), "{found:?}");
    assert_eq!(found.table.is_empty(), found.best == found.asked.config, "rows are for what is better: {found:?}");
    // A row is what the function asks for next.
    let mut table = Table::new();
    table.insert("CPU", f32::ELEMENT, &[3, 1000], SoftmaxConfig { block: 512, num_warps: 2 });
    table.extend(&found.table);
    let cx = Context::new(&Device::cpu()).with_table(table);
    let x = Tensor::<f32, 2>::zeros(cx.device(), [4, 1024]).unwrap();
    let (_, asked) = cx.asked(|cx| rows::softmax(cx, &x));
    let told = if found.table.is_empty() { 512 } else { found.best["block"] };
    assert_eq!(asked[0].config["block"], told);
}

/// The first configuration is what the library chose, which is right; nothing else is.
#[test]
fn configurations_with_other_results_do_not_win() {
    let chosen = 1024;
    let found = tuned(|block| block == chosen);
    assert_eq!(found.asked.config["block"], chosen as i64);
    assert!(found.best["block"] == chosen as i64 && !found.failed.is_empty(), "{found:?}");
    assert!(found.failed.iter().all(|why| why.starts_with("computes something else: wrong with ")), "{found:?}");
}

#[test]
fn what_the_library_does_not_have_is_an_error() {
    let cx = Context::new(&Device::cpu());
    let x = Tensor::<f32, 2>::zeros(cx.device(), [1, 64]).unwrap();
    let (_, mut asked) = cx.asked(|cx| rows::softmax(cx, &x));
    asked[0].kernel = "softmin";
    let tune =
        |asked: &Asked| tuning::tune(&cx, asked, &Effort::default(), |_| Ok(()), &mut ()).unwrap_err().to_string();
    assert!(tune(&asked[0]).starts_with("tuning: there is no kernel `softmin`; there are "));
    (asked[0].kernel, asked[0].config) = ("softmax", [("rows".to_string(), 1)].into());
    assert_eq!(tune(&asked[0]), "tuning: `softmax` was told {\"rows\": 1}; its numbers are block, num_warps");
}

/// The target of a device that the library's own table names.
fn target(device: &str) -> Target {
    match device {
        _ if ["H100", "H200"].iter().any(|name| device.contains(name)) => Target::sm_90a(),
        other => panic!("say here what target {other} is"),
    }
}

/// Whether a row still fits: its numbers are those of its kernel, and what the function launches then is placed.
fn fits(kernel: &str, row: &Row) -> Result<(), Error> {
    let cx = tuning::with_row(&Context::new(&Device::cpu()), kernel, row)?;
    let launches = tuning::placed(target(&row.device), || calls::call(&cx, kernel, row))?;
    assert!(!launches.is_empty(), "{kernel} {row:?} launches nothing");
    Ok(())
}

#[test]
fn rows_of_the_librarys_table_fit_what_they_are_for() {
    let table = own_table().unwrap();
    let mut broken = Vec::new();
    for kernel in table.as_tune().kernels() {
        for row in table.as_tune().rows(kernel) {
            broken.extend(fits(kernel, row).err().map(|error| format!("{kernel} {row:?}: {error}")));
        }
    }
    assert!(broken.is_empty(), "rows that no longer fit; tune them again, or take them out:\n{}", broken.join("\n"));
}

#[test]
fn rows_that_no_longer_fit_are_found() {
    let row = |config: &str| {
        let text = "device = \"NVIDIA H100 80GB HBM3\"\ndtype = \"f16\"\nsizes = [1, 4096, 4096, 4096]";
        let table = Table::parse(&format!("[[matmul]]\n{text}\nconfig = {{ {config} }}")).unwrap();
        fits("matmul", &table.as_tune().rows("matmul")[0]).map_err(|error| error.to_string())
    };
    let of = |bm: usize, bk: usize, stages: usize, last: &str| {
        format!(
            "bm = {bm}, bn = 128, bk = {bk}, group = 8, splits = 1, resident = 1, num_warps = 8, num_stages = {stages}{last}"
        )
    };
    assert_eq!(row(&of(128, 64, 4, "")), Ok(()));
    let unknown = row(&of(128, 64, 4, ", slices = 2")).unwrap_err();
    assert!(unknown.contains("names `slices`; its kernel has bm, bn, bk"), "{unknown}");
    assert!(row("bm = 128").unwrap_err().contains("has no `bn`"));
    assert!(row(&of(100, 64, 4, "")).is_err(), "no power of two");
    let much = row(&of(256, 256, 6, "")).unwrap_err();
    assert!(much.contains("shared memory"), "{much}");
}

/// Calls of functions, as rows name them. Tensors are as small as divide like those of the row: what is placed depends on nothing
/// else of them.
mod calls {
    use super::*;
    use tilewright_kernels::attention::{self, Attention, LatentCache, PagedCache};
    use tilewright_kernels::products;

    /// Calls the function that a row is for.
    pub fn call(cx: &Context, kernel: &str, row: &Row) -> Result<(), Error> {
        match (kernel, row.dtype.as_str(), row.sizes.as_slice()) {
            ("matmul", "f16", &[1, m, n, k]) => matmul(cx, [m, n, k]),
            ("attention_decode", "f16", &[d, rows, _, _, page]) => decode::<f16>(cx, d, rows, page),
            ("attention_decode", "f16, keys of 8 bits", &[d, rows, _, _, page]) => decode::<F8E4M3>(cx, d, rows, page),
            ("attention_mla", "f16", &[rank, heads, _, _, page]) => latent(cx, rank, heads, page),
            ("fp8_blocks", "f8e4m3", &[m, n, k]) => fp8_blocks(cx, [m, n, k]),
            ("cross_entropy", "bf16", &[_, columns]) => cross_entropy(cx, columns),
            of => panic!("say here how {of:?} is called"),
        }
    }

    fn matmul(cx: &Context, [m, n, k]: [usize; 3]) -> Result<(), Error> {
        let a = Tensor::<f16, 2>::zeros(cx.device(), [m, k])?;
        let b = Tensor::<f16, 2>::zeros(cx.device(), [k, n])?;
        products::matmul(cx, &a, &b).map(drop)
    }

    fn fp8_blocks(cx: &Context, [m, n, k]: [usize; 3]) -> Result<(), Error> {
        let (a, b) =
            (Tensor::<F8E4M3, 2>::zeros(cx.device(), [m, k])?, Tensor::<F8E4M3, 2>::zeros(cx.device(), [n, k])?);
        let groups = k.div_ceil(128);
        let a_scale = Tensor::<f32, 2>::zeros(cx.device(), [m, groups])?;
        let b_scale = Tensor::<f32, 2>::zeros(cx.device(), [n.div_ceil(128), groups])?;
        let mut c = Tensor::<bf16, 2>::zeros(cx.device(), [m, n])?;
        let (b, b_scale) = (b.view().transpose(0, 1)?, b_scale.view().transpose(0, 1)?);
        products::fp8::matmul_blocks_into(cx, &a, &a_scale, b, b_scale, &mut c)
    }

    fn cross_entropy(cx: &Context, columns: usize) -> Result<(), Error> {
        const ROWS: usize = 4;
        let x = Tensor::<bf16, 2>::zeros(cx.device(), [ROWS, columns])?;
        let labels = Tensor::<i32, 1>::zeros(cx.device(), [ROWS])?;
        rows::cross_entropy(cx, &x, &labels, rows::CrossEntropy::default()).map(drop)
    }

    const SEQUENCES: usize = 2;
    const HEADS: usize = 8;

    /// A page for each sequence, and so many keys in it.
    fn pages(cx: &Context, page: usize) -> Result<(Tensor<i32, 2>, Tensor<i32, 1>), Error> {
        let table = Tensor::upload(cx.device(), &[0, 1], [SEQUENCES, 1])?;
        Ok((table, Tensor::upload(cx.device(), &[page as i32; SEQUENCES], [SEQUENCES])?))
    }

    fn decode<K: Float>(cx: &Context, d: usize, rows: usize, page: usize) -> Result<(), Error> {
        let ((table, lengths), shape) = (pages(cx, page)?, [SEQUENCES, page, HEADS, d]);
        let (k, v) = (Tensor::<K, 4>::zeros(cx.device(), shape)?, Tensor::<K, 4>::zeros(cx.device(), shape)?);
        let q = Tensor::<f16, 4>::zeros(cx.device(), [SEQUENCES, HEADS * rows, 1, d])?;
        let cache = PagedCache {
            k: k.view(),
            v: v.view(),
            table: table.view(),
            lengths: lengths.view(),
            k_scale: None,
            v_scale: None,
        };
        attention::paged_decode(cx, &q, &cache, &Attention::default()).map(drop)
    }

    fn latent(cx: &Context, rank: usize, heads: usize, page: usize) -> Result<(), Error> {
        /// Elements of a key that are turned by its place, behind the latent ones.
        const TURNED: usize = 64;
        let (table, lengths) = pages(cx, page)?;
        let tokens = Tensor::<f16, 3>::zeros(cx.device(), [SEQUENCES, page, rank + TURNED])?;
        let q = Tensor::<f16, 4>::zeros(cx.device(), [SEQUENCES, heads, 1, rank + TURNED])?;
        let cache = LatentCache { tokens: tokens.view(), table: table.view(), lengths: lengths.view(), rank };
        attention::mla_decode(cx, &q, &cache, &Attention::default().scale(0.1)).map(drop)
    }
}

#[test]
fn rows_of_every_function_that_is_known_can_be_looked_at() {
    let row = |kernel: &str, dtype: &str, sizes: &str, config: &str| {
        let text = format!("device = \"NVIDIA H100 80GB HBM3\"\ndtype = \"{dtype}\"\nsizes = [{sizes}]");
        let table = Table::parse(&format!("[[{kernel}]]\n{text}\nconfig = {{ {config} }}")).unwrap();
        fits(kernel, &table.as_tune().rows(kernel)[0])
    };
    let decode = "block_rows = 16, block_k = 64, parts = 2, num_warps = 4, num_stages = 3";
    for dtype in ["f16", "f16, keys of 8 bits"] {
        assert_eq!(row("attention_decode", dtype, "128, 8, 8192, 512, 64", decode), Ok(()));
    }
    let latent = "block_heads = 64, block_k = 32, parts = 2, num_warps = 8, num_stages = 2";
    assert_eq!(row("attention_mla", "f16", "512, 128, 8192, 128, 64", latent), Ok(()));
    let many = latent.replace("block_k = 32", "block_k = 128");
    assert!(
        row("attention_mla", "f16", "512, 128, 8192, 128, 64", &many).is_err(),
        "128 keys are no part of a page of 64"
    );
}
