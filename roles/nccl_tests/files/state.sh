# What is on this node: installed programs, compiler, MPI and NCCL. Reads only.
# Arguments: prefix, CUDA_HOME, NCCL_HOME, MPI_HOME, the Python whose wheel of NCCL is taken; packages, NAME or NAME=VERSION.
LC_ALL=C
export LC_ALL
prefix=$1 cuda=$2 home=$3 mpi=$4 python=$5
shift 5

missing=''
for package; do
  case $package in *=*) wanted="installed ${package#*=}" ;; *) wanted=installed ;; esac
  # shellcheck disable=SC2016 # for dpkg-query to fill in
  dpkg-query --show --showformat='${db:Status-Status}\n${db:Status-Status} ${Version}\n' "${package%%=*}" 2>/dev/null |
    grep -qxF "$wanted" || missing="$missing $package"
done

key='' digest=''
if [ -r "$prefix/stamp" ]; then
  read -r key recorded <"$prefix/stamp"
  digest=$(cat "$prefix"/bin/*_perf 2>/dev/null | sha256sum | cut -d' ' -f1)
  [ "$digest" = "$recorded" ] || key='' digest=''
fi

if [ ! -x "$cuda/bin/nvcc" ]; then
  found=$(command -v nvcc) && cuda=$(dirname "$(dirname "$(readlink -f "$found")")")
fi
nvcc='' archs=''
if [ -x "$cuda/bin/nvcc" ]; then
  nvcc=$("$cuda/bin/nvcc" --version 2>/dev/null | sed -n 's/.*release .*, V\([0-9.]*\).*/\1/p')
  archs=$("$cuda/bin/nvcc" --list-gpu-arch 2>/dev/null | paste -sd' ')
fi

mpi_problem=''
if [ -z "$mpi" ] && command -v mpicc >/dev/null; then
  for folder in $(mpicc --showme:incdirs 2>/dev/null) /usr/include; do
    if [ -f "$folder/mpi.h" ]; then mpi=$(dirname "$folder"); break; fi
  done
fi
if [ -n "$mpi" ]; then
  [ -f "$mpi/include/mpi.h" ] || mpi_problem="$mpi/include/mpi.h is missing"
  if [ ! -e "$mpi/lib/libmpi.so" ] && [ ! -e "$mpi/lib64/libmpi.so" ]; then
    mpi_problem="${mpi_problem:-$mpi has neither lib/libmpi.so nor lib64/libmpi.so}"
  fi
fi

nccl_problem=''
if [ -z "$home" ] && [ -n "$python" ]; then
  home=$("$python" -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2>/dev/null) ||
    nccl_problem="$python has no wheel of NCCL (nccl_tests_nccl_python)"
fi
if [ -n "$home" ]; then
  [ -f "$home/include/nccl.h" ] || nccl_problem="$home/include/nccl.h is missing (nccl_tests_nccl_home)"
  ls "$home"/lib/libnccl.so* "$home"/lib64/libnccl.so* 2>/dev/null | grep -q . ||
    nccl_problem=${nccl_problem:-"$home has neither lib/libnccl.so nor lib64/libnccl.so (nccl_tests_nccl_home)"}
fi
nccl=''
if [ -f "${home:-/usr}/include/nccl.h" ]; then
  nccl=$(sed -n 's/^#define NCCL_\(MAJOR\|MINOR\|PATCH\) *\([0-9]*\).*/\2/p' "${home:-/usr}/include/nccl.h" | paste -sd.)
fi

cat <<TEXT
missing=${missing# }
stamp=$(head -n 1 "$prefix/stamp" 2>/dev/null)
key=$key
digest=$digest
machine=$(uname -m)
machine_id=$(cat /etc/machine-id 2>/dev/null)
processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
cuda_home=$cuda
nvcc=$nvcc
nvcc_archs=$archs
mpi_home=$mpi
mpi_problem=$mpi_problem
mpi=$(mpicc --showme:version 2>/dev/null | grep -o '[0-9][0-9.]*' | head -n 1)
nccl=$nccl
nccl_home=$home
nccl_problem=$nccl_problem
TEXT
