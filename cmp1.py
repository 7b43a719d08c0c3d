import sys, json
from pathlib import Path
import importlib, torch, triton, re
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
sys.path.insert(0,"/tmp/wtb/lo")
for folder in sorted(Path("/tmp/wtb/lo").glob("l_*")):
    try: m=importlib.import_module(folder.name+".kernel")
    except Exception as e: print("IMPORT",folder,e); continue
    fn=getattr(m,f"_{folder.name}_kernel")
    dt=folder.name.split("_")[1]
    for t in {"float":["fp32","fp64"],"float32":["fp32"],"int32":["i32"],"uint8":["u8"]}[dt]:
        sig={}; const={}
        for n in fn.arg_names:
            if n in("x_ptr","z_ptr"): sig[n]=f"*{t}"
            elif n.endswith("_ptr"): sig[n]="*fp32" if "float" in dt else "*i32"
            elif n in("n",): sig[n]="i32"
            elif n.isupper(): sig[n]="constexpr"; const[n]={"BLOCK":128,"INDEX":triton.language.int32,"COMPUTE":triton.language.float64 if t=="fp64" else triton.language.float32}[n]
            else: sig[n]="i32"
        try: triton.compile(ASTSource(fn,sig,const),target=GPUTarget("cuda",90,32))
        except Exception as e: print(folder.name,t,str(e)[-400:])
