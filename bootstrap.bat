@echo off
rem Sets sari up on a machine that has only Python 3.11 or later. All arguments are those of install.py.
setlocal
set "here=%~dp0"
where py >nul 2>nul
if %errorlevel%==0 (
    py -3 "%here%install.py" %*
    exit /b
)
where python >nul 2>nul
if %errorlevel%==0 (
    python "%here%install.py" %*
    exit /b
)
echo sari: Python 3.11 or later is needed and was not found. Install it from python.org or the Microsoft Store.
exit /b 1
