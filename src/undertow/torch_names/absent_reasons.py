"""Why undertow does not have a name of PyTorch's: patterns of names, for `missing.reason`."""

# ruff: noqa: E501  (a pattern is read in one line)

from __future__ import annotations

QUANTIZED = "models cannot be quantized: undertow computes with floats"
COMPILER = "part of PyTorch's compiler of Python: models are Python here"
KERNEL = "a kernel of a library that undertow does not use; the public function computes the same"
GPU = "of other devices, or of CUDA's own library: docs/cuda.md says what undertow has on a GPU"
PROCESSES = "processes exchange over MPI, and this is a part of other ways: docs/distributed.md says what there is"
STORAGE = "memory without a shape: use a tensor, or x.untyped_storage()"
REMOVED = "PyTorch has removed it, too, or announces to"
INTERNAL = "a detail of PyTorch's implementation"
PIPES = "PyTorch has given up its data pipes, too: use Dataset or IterableDataset, and generators"

#: patterns of full names -> the reason; the first one that fits
REASONS = [
    (r"torch\.(Tensor\.)?(smm|sspaddmm|saddmm|hspmm)$", "use torch.sparse.mm and torch.sparse.addmm (docs/sparse.md)"),
    (r"torch\.(autograd\.)?(jacobian|hessian|vjp|jvp|hvp|value_and_grad)$", "use torch.func.jacrev, hessian, vjp, jvp, grad_and_value (docs/derivatives.md)"),
    (r"torch\.grad$", "use torch.autograd.grad(output, inputs), or torch.func.grad(function), which gives a function (docs/ten-minutes.md)"),
    (r"torch\.(export|package)(\.|$)", "models are not exported: save the state_dict() with torch.save (docs/files.md)"),
    (r"torch\.Tensor\.dim_order$", "sort the dimensions by x.stride()"),
    (r"torch\.Tensor\.index$", "use x[...] with tensors as indices"),
    (r"torch\.Tensor\.const_data_ptr$", "use x.data_ptr()"),
    (r"torch\.Tensor\.(pin_memory|to_padded_tensor|module_load)$", "leave it out"),
    (r"torch\.(\w+_copy)$", "use the function without _copy, and clone() its result"),
    (r"torch\.func\.rearrange$", "use reshape and permute, or the package einops (docs/libraries.md)"),
    (r"torch\.utils\.swap_tensors$", "set x.data, or load_state_dict(..., assign=True)"),
    (r"torch\.utils\.benchmark\b", "use Python's timeit for times, and torch.profiler for where they go (docs/seeing.md)"),
    (r"torch\.(autograd\.)?(function\.)?NestedIOFunction$", "use torch.autograd.Function, with tensors as arguments"),
    (r"torch\.distributed\.(\w*Store|register_rendezvous_handler)$", "processes find each other through MPI: init_process_group() needs no store (docs/distributed.md)"),
    (r"torch\.distributed\.(DeviceMesh|init_device_mesh|split_group|shrink_group)$", "use torch.distributed.new_group for each group of processes (docs/distributed.md)"),
    (r"torch\.distributed\.(fsdp|tensor)\b", "use fully_shard of undertow.distributed.sharding (docs/distributed.md)"),
    (r"torch\.distributed\.(all_gather|reduce_scatter)_single$", "use torch.distributed.all_gather_into_tensor and reduce_scatter_tensor"),
    (r"torch\.sparse\.(as_sparse_gradcheck)$", "use torch.autograd.gradcheck, which takes sparse tensors"),
    (r"torch\.(.*\.)?(\w*Storage(Base)?|storage_\w+)$", STORAGE),
    (r"torch\.(\w*Type|Script\w*|CompilationUnit|Graph\w*|Node|Value|Block|Code|CallStack|Argument\w*|AliasDb|Use|Type)$", COMPILER),
    (r"torch\.(FunctionSchema|Gradient|ExecutionPlan|IODescriptor|ErrorReport|JITException|FileCheck|LiteScriptModule)$", COMPILER),
    (r"torch\.(parse_\w+|import_ir\w+|merge_type\w+|unify_type\w+|fork|wait|StaticModule|TracingState|Capsule)$", COMPILER),
    (r"torch\.(Complete\w+|Concrete\w+|Inferred\w+|Operator\w+|Deserialization\w+|Serialization\w+|Benchmark\w+)$", COMPILER),
    (r"torch\.(jit|fx|compiler|export|package)\.", COMPILER),
    (r".*(quant|qparams|q_per|q_scale|q_zero|qint|quint|fbgemm|int_repr|observer|fake_|qscheme|per_channel|per_tensor)", QUANTIZED),
    (r".*(cudnn|miopen|mkldnn|batch_norm_\w+|native_\w+|conv_tbc|_copy$|resize_as_sparse|slice_inverse|hspmm|hsmm|dsmm)", KERNEL),
    (r"torch\.cuda\.(CUDAGraph|graph\w*|make_graphed_callables)$", "leave it out: launches that repeat become CUDA graphs by themselves (docs/cuda.md)"),
    (r"torch\.(cuda|xpu|mtia|mps|ipu|vulkan)\b", GPU),
    (r"torch\.Tensor\.(ipu|xpu|mtia|pin_memory|record_stream|to_mkldnn|storage_type)$", GPU),
    (r"torch\.distributed\.", PROCESSES),
    (r"torch\.(eig|lstsq|matrix_rank|solve|symeig)$", REMOVED),
    (r"torch\.Tensor\.(eig|lstsq|solve|symeig|reinforce|resize|resize_as|smm|sspaddmm)$", REMOVED),
    (r"torch\.(bits?\w*|u?int[1-7]|float4\w*|chalf|complex32)$", "a dtype that nobody computes with on a CPU"),
    (r"torch\.(set_autocast\w*|autocast_\w+|get_autocast_(ipu|xla)\w*|is_autocast_(ipu|xla)\w*)$", "use torch.autocast"),
    (r"torch\.(sym_\w+)$", "sizes are numbers here"),
    (r"torch\.serialization\.", "files are data, and loading runs no code (docs/files.md)"),
    (r"torch\.nested\b", "use lists of tensors, or masked tensors (docs/masked.md)"),
    (r"torch\.utils\.data\.\w*([Pp]ipe|DataChunk|determinis|runtime_validation|argument_validation)", PIPES),
    (r"torch\.utils\.checkpoint\.", INTERNAL),
    (r"torch\.[A-Z]\w*$", INTERNAL),
    (r"torch\.utils\.|torch\.backends\.|torch\.autograd\.|torch\.nn\.attention\.|torch\.library\.|torch\.overrides\.", INTERNAL),
    (r"torch\.(nn\.Module|Tensor)\.(ipu|xpu|mtia)$", GPU),
    (r"torch\.sparse\.", "sparse tensors are those of docs/sparse.md"),
    (r"torch\.(export|package|classes|cpp|monitor|windows|classproperty|thread_safe_generator|get_file_path|prepare_\w+|profiler_\w+|init_num_threads|torch_version)$", INTERNAL),
    (r"torch\.(affine_grid_generator|embedding_renorm_|max_pool1d_with_indices)$", KERNEL),
    (r"torch\.(saddmm|smm|sspaddmm)$|torch\.Tensor\.sparse_resize\w*", "sparse tensors are those of docs/sparse.md"),
    (r"torch\.(Tensor\.)?(hash_tensor|const_data_ptr|dim_order|index|module_load|to_padded_tensor)$", INTERNAL),
    (r"torch\.(cpu|func|profiler|random|testing|optim\.Optimizer)\.|torch\.nn\.(Module\.)?(factory_kwargs|T_destination|dump_patches)$", INTERNAL),
    (r"torch\.nn\.functional\.(Broadcasting|GRID|assert_|boolean_|grad$)", INTERNAL),
    (r".*\.(torch|Tensor|handle_torch_function|has_torch_function\w*|[a-z0-9_]*_notes?|annotations)$", INTERNAL),
]  # fmt: skip
